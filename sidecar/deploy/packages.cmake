# Debian packages, by `cpack -G DEB` in the build directory:
#   qwp-sidecar  the daemon, its unit, an example of its configuration, qwp-feed
#   libqwp0.1    the producer library
#   libqwp-dev   its header, the static library, pkg-config and CMake files
set(here ${CMAKE_CURRENT_LIST_DIR})
if(QWP_BUILD_DAEMON)
    install(FILES ${here}/qwp-sidecar.service DESTINATION lib/systemd/system COMPONENT service)
    install(FILES ${here}/tmpfiles.conf DESTINATION lib/tmpfiles.d RENAME qwp-sidecar.conf
            COMPONENT service)
    # A path of the system, not below the prefix: only a package may put it there.
    install(FILES ${here}/qwp.conf DESTINATION /etc/qwp-sidecar COMPONENT service EXCLUDE_FROM_ALL)
    install(FILES ${here}/grafana-dashboard.json DESTINATION ${CMAKE_INSTALL_DATADIR}/qwp-sidecar
            COMPONENT service)
    # As they lie in the tree, so that links between them hold.
    install(FILES ${here}/../OPERATIONS.md ${here}/../CONFIGURATION.md DESTINATION share/doc/qwp-sidecar
            COMPONENT service)
    install(FILES ${here}/README.md DESTINATION share/doc/qwp-sidecar/deploy COMPONENT service)
endif()

set(soname ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME qwp-sidecar)
set(CPACK_PACKAGE_VENDOR "qwp-sidecar")
set(CPACK_PACKAGE_CONTACT "qwp-sidecar maintainers <maintainers@example.invalid>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)

set(CPACK_DEBIAN_SIDECAR_PACKAGE_NAME qwp-sidecar)
set(CPACK_DEBIAN_SIDECAR_PACKAGE_SECTION database)
set(CPACK_DEBIAN_SIDECAR_PACKAGE_DEPENDS "ca-certificates, passwd")
set(CPACK_DEBIAN_SIDECAR_PACKAGE_CONTROL_EXTRA
    "${here}/debian/postinst;${here}/debian/prerm;${here}/debian/postrm;${here}/debian/conffiles")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libqwp${soname})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libqwp-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libqwp${soname} (= ${PROJECT_VERSION})")

# One summary for all of them: CPack knows no other.
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "shared-memory ingestion for QuestDB")
set(CPACK_DEBIAN_SIDECAR_DESCRIPTION "The daemon: takes rows of local processes from shared memory, stores them
until they are acknowledged, and sends them over one TLS WebSocket. And
qwp-feed, which makes rows of lines.")
set(CPACK_DEBIAN_LIBRARY_DESCRIPTION "The producer library: writes rows into shared memory, for a qwp-sidecar on
the same host or in the same pod.")
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION "What is needed to build producers: header and static library, for pkg-config
and CMake.")

include(CPack)
cpack_add_component_group(sidecar)
cpack_add_component_group(library)
cpack_add_component_group(development)
cpack_add_component(daemon GROUP sidecar)
cpack_add_component(service GROUP sidecar)
cpack_add_component(feed GROUP sidecar)
cpack_add_component(producer_runtime GROUP library)
cpack_add_component(producer GROUP development)
