#!/bin/sh
# Stands in for the daemon: says the lines that a test put next to its link.
. "${0%/*}/palyrad.lines"
