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

include(CPack)
cpack_add_component_group(sidecar DESCRIPTION
    "Carries rows of local processes to QuestDB\n Takes rows from shared memory and sends them over one TLS WebSocket.")
cpack_add_component_group(library DESCRIPTION
    "Producer library of qwp-sidecar\n Writes rows into shared memory for a sidecar on the same host.")
cpack_add_component_group(development DESCRIPTION
    "Header and static library for producers of qwp-sidecar")
cpack_add_component(daemon GROUP sidecar)
cpack_add_component(service GROUP sidecar)
cpack_add_component(feed GROUP sidecar)
cpack_add_component(producer_runtime GROUP library)
cpack_add_component(producer GROUP development)
