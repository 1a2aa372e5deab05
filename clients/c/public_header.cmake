# Writes the installed qwp.h: clients/c/qwp.h with the two core headers it needs in place of their
# includes, less what is for our own code only.
#   cmake -DROOT=<source tree> -DOUT=<file> -P public_header.cmake
file(READ ${ROOT}/clients/c/qwp.h public)
file(READ ${ROOT}/core/qwp_error.h error)
file(READ ${ROOT}/core/qwp_result.h result)
string(REGEX REPLACE "/\\* ---- not in the installed qwp\\.h.*\n#endif" "#endif" error "${error}")
string(REPLACE "#include \"core/qwp_result.h\"\n" "${result}" error "${error}")
string(REPLACE "#include \"core/qwp_error.h\"\n" "${error}" public "${public}")
string(FIND "${public}" "#include \"" left_over)
string(FIND "${public}" "qwp_fail(" private)
if(NOT left_over EQUAL -1 OR NOT private EQUAL -1)
    message(FATAL_ERROR "the public header does not stand alone: see public_header.cmake")
endif()
file(WRITE ${OUT} "${public}")
