/*
 * The answer to `hoopinfo --job`: what the comms and streams of this process are at, as one JSON
 * object, for who asks at an abstract Unix socket,
 *
 *      hoop-job-UID-PID-XXXXXXXX        X: of hoop_process_id(), for pids that are the same in
 *                                       several pid namespaces
 *
 * of type SOCK_SEQPACKET. Nobody needs to say anything: who connects, and is this user or root by
 * the kernel's word, is sent the text in packets, and then the connection ends. Nothing that comes
 * in is read. The service thread does it all: few at a time, each for a limited time; it waits for
 * no lock of a comm, and never for its turn.
 *
 *      {"version":100,"pid":4711,"streams":[...],"streams_left_out":0,"comms":[...],"left_out":0}
 *
 * left_out: comms that were busy just then, and from the first that did not fit the text on, all.
 * streams_left_out: those from the first on that did not fit half of it.
 */
#ifndef HOOP_REPORT_H
#define HOOP_REPORT_H

/* Listens from now on, if it does not yet. Without it nothing else fails. Any thread. */
void hoop_report_start(void);

#endif
