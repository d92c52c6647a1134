#!/bin/sh
# The example builds against an installation with nothing but find_package(hoop), and runs. Without
# CMake this is reported.
#     check_cmake.sh SOURCE PREFIX WORK
set -eu
source=$1 prefix=$2 work=$3
command -v cmake >/dev/null || { echo "skip: no cmake"; exit 0; }
mkdir -p "$work"
cat >"$work/CMakeLists.txt" <<TEXT
cmake_minimum_required(VERSION 3.13)
project(hello C)
find_package(hoop 0.1 REQUIRED CONFIG)
add_executable(hello "$source/examples/hello_allreduce.c")
target_link_libraries(hello hoop::hoop)
TEXT
config=$(find "$prefix" -name hoop-config.cmake)
cmake -S "$work" -B "$work/build" -Dhoop_DIR="${config%/*}" >"$work/log" 2>&1 &&
    cmake --build "$work/build" >>"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
timeout 60 "$work/build/hello"
