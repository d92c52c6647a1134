#include "hooprun/hooprun_terminal.h"

#include <fcntl.h>
#include <termios.h>
#include <unistd.h>

/* Moves the foreground from one group to another. False if `from` does not have it. */
static bool terminal_pass(pid_t from, pid_t to)
{
    const int fd = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) {
        return false;
    }
    const bool passed = tcgetpgrp(fd) == from && tcsetpgrp(fd, to) == 0;
    close(fd);
    return passed;
}

bool hooprun_terminal_stops_writers(pid_t group)
{
    struct termios modes;
    const int fd = open("/dev/tty", O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) {
        return false;
    }
    const bool stops =
        tcgetpgrp(fd) == group && tcgetattr(fd, &modes) == 0 && (modes.c_lflag & TOSTOP) != 0;
    close(fd);
    return stops;
}

bool hooprun_terminal_lend(struct hooprun_terminal *terminal, pid_t group)
{
    if (!terminal_pass(terminal->owner, group)) {
        return false;
    }
    terminal->borrower = group;
    return true;
}

void hooprun_terminal_return(struct hooprun_terminal *terminal, pid_t group)
{
    if (terminal->borrower == group && group != 0) {
        terminal_pass(group, terminal->owner);
        terminal->borrower = 0;
    }
}
