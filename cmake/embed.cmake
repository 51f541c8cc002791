# SPDX-License-Identifier: Apache-2.0
# Writes OUTPUT, a C file with the text of each of INPUTS: report.css is
# `const char usc_page_css[]`, report_step.js is `usc_page_step_js`.
# Run as: cmake -DINPUTS=report.html,report.css -DOUTPUT=page.c -P embed.cmake
set(text "// Made by cmake/embed.cmake; do not edit.\n")
string(REPLACE "," ";" INPUTS "${INPUTS}")
foreach(input IN LISTS INPUTS)
  get_filename_component(ext ${input} NAME)
  string(REGEX REPLACE "^report[_.]" "" ext ${ext})
  string(REPLACE "." "_" ext ${ext})
  file(READ ${input} bytes HEX)
  string(REGEX REPLACE "(................................)" "\\1\n    " bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${bytes}")
  string(APPEND text "extern const char usc_page_${ext}[];\n"
                     "const char usc_page_${ext}[] = {\n    ${bytes}0};\n")
endforeach()
file(WRITE ${OUTPUT} "${text}")
