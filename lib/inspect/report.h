/*
 * The answer to `hoopinfo --job`: the state of this process's comms and streams as one JSON object,
 * for clients of an abstract Unix socket,
 *
 *      hoop-job-UID-PID-XXXXXXXX        X: from hoop_process_id(), since a pid may occur in
 *                                       several pid namespaces
 *
 * of type SOCK_SEQPACKET. A client only connects. If the kernel says that it is this user or root,
 * the text is sent to it in packets and the connection is closed. Nothing that a client sends is
 * read. The service thread does all of it, for few clients at a time and a limited time each; it
 * waits for no lock of a comm, and never for its turn.
 *
 *      {"version":"1.0.0","pid":47,"streams":[...],"streams_left_out":0,"comms":[...],"left_out":0}
 *
 * left_out counts comms that were locked at that moment, and all from the first that did not fit.
 * streams_left_out counts those from the first that did not fit into half of the text.
 */
#ifndef HOOP_REPORT_H
#define HOOP_REPORT_H

/* Starts to listen, if it does not yet. If that fails nothing else does. Any thread. */
void hoop_report_start(void);

#endif
