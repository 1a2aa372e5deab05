module qwp/go-peer

go 1.23

require github.com/questdb/go-questdb-client/v4 v4.0.0
