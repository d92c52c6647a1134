/*
 * Describes an address (see site.h): finds the mapping in /proc/PID/maps, then the segment, then
 * the symbol in the file. It uses pread() and no mapping, because a file that shrinks meanwhile
 * must not kill the process, and it checks everything that the file says before it uses it.
 */
#include "runtime/site.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The file that an address is mapped from. Not on the stack, as a thread's may be small. */
struct site_mapping {
    uint64_t offset; /* of the address within the file */
    char path[PATH_MAX];
    char line[PATH_MAX + 128]; /* a line of maps; then the path as this process opens it */
};

#define SITE_SYMBOLS 64u /* read at a time */

/* The symbol that contains the address. */
struct site_symbol {
    char name[48];
    uint64_t distance; /* from the symbol's beginning */
};

static bool site_find_mapping(int pid, uint64_t address, struct site_mapping *ret)
{
    char *line = ret->line;
    bool found = false;
    (void)snprintf(line, sizeof(ret->line), "/proc/%d/maps", pid);
    FILE *maps = fopen(line, "re");
    while (maps != NULL && !found && fgets(line, sizeof(ret->line), maps) != NULL) {
        unsigned long long start = 0, end = 0, offset = 0;
        int at = 0;
        const int fields =
            sscanf(line, "%llx-%llx %*4s %llx %*s %*u %n", &start, &end, &offset, &at);
        found = fields == 3 && at > 0 && line[at] == '/' && address >= start && address < end;
        if (found) {
            line[strcspn(line, "\n")] = '\0';
            ret->offset = address - start + offset;
            (void)snprintf(ret->path, sizeof(ret->path), "%.*s", PATH_MAX - 1, line + at);
        }
    }
    if (maps != NULL) {
        (void)fclose(maps);
    }
    return found;
}

static bool site_read(int fd, uint64_t offset, void *buf, size_t bytes)
{
    return offset <= INT64_MAX && pread(fd, buf, bytes, (off_t)offset) == (ssize_t)bytes;
}

/* Converts an offset in the file to a virtual address, as symbols have them. */
static bool site_find_address(int fd, const ElfW(Ehdr) * head, uint64_t offset, uint64_t *ret)
{
    for (unsigned i = 0; i < head->e_phnum; i++) {
        ElfW(Phdr) segment;
        if (!site_read(fd, head->e_phoff + i * sizeof(segment), &segment, sizeof(segment))) {
            return false;
        }
        if (segment.p_type == PT_LOAD && offset >= segment.p_offset &&
            offset - segment.p_offset < segment.p_filesz) {
            *ret = segment.p_vaddr + (offset - segment.p_offset);
            return true;
        }
    }
    return false;
}

static bool site_holds(const ElfW(Sym) * symbol, uint64_t address)
{
    return (symbol->st_info & 0xf) == STT_FUNC && address >= symbol->st_value &&
           address - symbol->st_value < symbol->st_size;
}

/* Searches one symbol table, whose names are in the section `names`. */
static bool site_search(int fd, const ElfW(Shdr) * table, const ElfW(Shdr) * names,
                        uint64_t address, struct site_symbol *ret)
{
    ElfW(Sym) symbols[SITE_SYMBOLS];
    const uint64_t count = table->sh_size / sizeof(symbols[0]);
    for (uint64_t first = 0; first < count; first += SITE_SYMBOLS) {
        const uint64_t some = count - first < SITE_SYMBOLS ? count - first : SITE_SYMBOLS;
        if (!site_read(fd, table->sh_offset + first * sizeof(symbols[0]), symbols,
                       some * sizeof(symbols[0]))) {
            return false;
        }
        for (uint64_t i = 0; i < some; i++) {
            if (site_holds(&symbols[i], address) && symbols[i].st_name < names->sh_size) {
                const ssize_t got = pread(fd, ret->name, sizeof(ret->name) - 1,
                                          (off_t)(names->sh_offset + symbols[i].st_name));
                ret->name[got > 0 ? got : 0] = '\0';
                ret->distance = address - symbols[i].st_value;
                return got > 0 && ret->name[0] != '\0';
            }
        }
    }
    return false;
}

static bool site_find_symbol(int fd, const ElfW(Ehdr) * head, uint64_t address,
                             struct site_symbol *ret)
{
    for (unsigned i = 0; i < head->e_shnum; i++) {
        ElfW(Shdr) table, names;
        if (!site_read(fd, head->e_shoff + i * sizeof(table), &table, sizeof(table))) {
            return false;
        }
        if ((table.sh_type == SHT_SYMTAB || table.sh_type == SHT_DYNSYM) &&
            table.sh_link < head->e_shnum &&
            site_read(fd, head->e_shoff + table.sh_link * sizeof(names), &names, sizeof(names)) &&
            site_search(fd, &table, &names, address, ret)) {
            return true;
        }
    }
    return false;
}

/* Opens the path as the process sees it, since that may have another root. */
static int site_open(int pid, struct site_mapping *mapping, ElfW(Ehdr) * ret_head)
{
    (void)snprintf(mapping->line, sizeof(mapping->line), "/proc/%d/root%s", pid, mapping->path);
    const int fd = open(mapping->line, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const bool good = fd >= 0 && site_read(fd, 0, ret_head, sizeof(*ret_head)) &&
                      memcmp(ret_head->e_ident, ELFMAG, SELFMAG) == 0 &&
                      ret_head->e_phentsize == sizeof(ElfW(Phdr)) &&
                      ret_head->e_shentsize == sizeof(ElfW(Shdr));
    if (fd >= 0 && !good) {
        (void)close(fd);
    }
    return good ? fd : -1;
}

static void site_describe(int pid, struct site_mapping *mapping, char *buf, size_t bytes)
{
    struct site_symbol symbol;
    ElfW(Ehdr) head;
    const char *file = strrchr(mapping->path, '/') + 1;
    uint64_t at = mapping->offset;
    const int fd = site_open(pid, mapping, &head);
    const bool placed = fd >= 0 && site_find_address(fd, &head, mapping->offset, &at);
    if (placed && site_find_symbol(fd, &head, at, &symbol)) {
        (void)snprintf(buf, bytes, "%s+%#llx (%s+%#llx)", symbol.name,
                       (unsigned long long)symbol.distance, file, (unsigned long long)at);
    } else {
        (void)snprintf(buf, bytes, "%s+%#llx", file, (unsigned long long)at);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
}

void hoop_site_describe(int pid, uint64_t address, char *buf, size_t bytes)
{
    struct site_mapping *mapping = malloc(sizeof(*mapping));
    if (mapping != NULL && site_find_mapping(pid, address - 1, mapping)) {
        site_describe(pid, mapping, buf, bytes);
    } else {
        (void)snprintf(buf, bytes, "%#llx", (unsigned long long)address);
    }
    free(mapping);
}
