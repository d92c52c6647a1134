/*
 * Cells (lib/exec/board.h): two ranks exchange OPS operations through cells k mod 2, without a
 * closing barrier. Checked: whoever finds tag k reads the data of operation k, neither older ones
 * nor those of k + 2.
 *
 * Stores go to a buffer that drains in any order, but for stores to one place. A tag is stored with
 * release: it drains behind the data. -DRELAXED: it need not.
 */
#define OPS 5

byte data[4], tag[4];           /* rank * 2 + (k mod 2), as the other rank sees it */
byte data_buffer[4], tag_buffer[4]; /* 0: empty */

proctype drain(byte at)
{
end: do
    :: data_buffer[at] != 0 -> d_step { data[at] = data_buffer[at]; data_buffer[at] = 0 }
#ifdef RELAXED
    :: tag_buffer[at] != 0 ->
#else
    :: tag_buffer[at] != 0 && data_buffer[at] == 0 ->
#endif
       d_step { tag[at] = tag_buffer[at]; tag_buffer[at] = 0 }
    od
}

proctype rank(byte me)
{
    byte k = 1, mine, theirs;
    do
    :: k > OPS -> break
    :: else ->
        mine = me * 2 + k % 2;
        theirs = (1 - me) * 2 + k % 2;
        data_buffer[mine] == 0 -> data_buffer[mine] = k;
        tag_buffer[mine] == 0 -> tag_buffer[mine] = k;
        tag[theirs] == k; /* acquire: the data are read behind it */
        assert(data[theirs] == k);
        k++
    od
}

init {
    atomic {
        run drain(0); run drain(1); run drain(2); run drain(3);
        run rank(0); run rank(1)
    }
}
