#!/usr/bin/env python3
"""Manual pages from what is written down already: the API's from hoop.h, a program's from --help.

    man.py api hoop.h VERSION             hoop(3): sections, comments and declarations, in order
    man.py program PROGRAM VERSION TEXT   PROGRAM(1): its --help, TEXT as its one line
"""
import re
import subprocess
import sys
from pathlib import Path


def roff(text):
    """Plain text as roff: nothing in it is a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)


def heading(name, section, version, line):
    return (f'.TH {name.upper()} {section} "" "hoop {version}" "hoop"\n'
            f".SH NAME\n{name} \\- {roff(line)}\n")


def comment(text):
    """The inside of a C comment as paragraphs; what is indented stays as it is."""
    lines = [re.sub(r"^ ?\* ?", "", line).rstrip() for line in text.strip().splitlines()]
    out, fixed = [], False
    for line in lines:
        indented = line.startswith("    ")
        if indented != fixed:
            out.append(".EX" if indented else ".EE")
            fixed = indented
        out.append(".PP" if line == "" and not fixed else roff(line))
    return "\n".join(out + [".EE"] * fixed) + "\n"


def declarations(code):
    """What a program sees; not how the header makes it."""
    kept = []
    for block in re.split(r"(?<=[;}])\n|\n(?=#define HOOP_[A-Z])", code):
        block = re.sub(r"^HOOP_API ", "", block.strip("\n"), flags=re.M)
        block = re.sub(r" +\\$", " \\\\", block, flags=re.M)
        if block.strip() and not block.lstrip().startswith(("#if", "#end", "#inc", "#undef", "#else")):
            kept.append(block)
    return "\n".join(kept)


def api(header, version):
    text = Path(header).read_text(encoding="utf-8")
    body = text[text.index("#ifdef __cplusplus"):text.rindex("#ifdef __cplusplus")]
    page = heading("hoop", 3, version, "collective operations for processes that train together")
    page += ".SH SYNOPSIS\n.EX\n#include <hoop.h>\n\ncc ... $(pkg\\-config \\-\\-cflags \\-\\-libs hoop)\n.EE\n"
    page += ".SH DESCRIPTION\n" + comment(re.match(r"/\*(.*?)\*/", text, re.S).group(1))
    for part in re.split(r"(^/\*.*?\*/)", body, flags=re.S | re.M)[1:]:
        title = re.match(r"/\* -+ (.*?) -+ \*/", part, re.S)
        if title:
            page += f".SH {roff(title.group(1)).upper()}\n"
        elif part.startswith("/*"):
            page += ".PP\n" + comment(part[2:-2])
        elif declarations(part):
            page += ".PP\n.EX\n" + roff(declarations(part)) + "\n.EE\n"
    return page + ".SH SEE ALSO\n.BR hooprun (1),\n.BR hoopinfo (1)\n"


def program(path, version, line):
    text = subprocess.run([path, "--help"], capture_output=True, check=True, text=True, timeout=60).stdout
    text = text.replace(path, Path(path).name)
    page = heading(Path(path).name, 1, version, line)
    return page + ".SH DESCRIPTION\n.EX\n" + roff(text) + ".EE\n.SH SEE ALSO\n.BR hoop (3)\n"


if __name__ == "__main__":
    sys.stdout.write({"api": api, "program": program}[sys.argv[1]](*sys.argv[2:]))
