// Reads the end of a container's log. Engines count lines, callers count bytes.

/** `open`: the given number of lines at the end of the log; undefined if the container has no log. */
export async function readLogTail(
  open: (lines: number) => Promise<AsyncIterable<Buffer> | undefined>,
  maxBytes: number,
): Promise<Uint8Array> {
  let tail: Uint8Array = new Uint8Array();
  // First as many lines as usually fill the bytes, then as many as possibly can.
  for (const lines of [Math.ceil(maxBytes / 64), maxBytes]) {
    const read = await readTail((await open(lines)) ?? [], maxBytes);
    tail = read.tail;
    if (tail.length >= maxBytes || read.lines < lines) break;
  }
  return tail;
}

/** Holds little more than the bytes in memory, because a container may write lines of any length. */
async function readTail(
  log: AsyncIterable<Buffer> | Iterable<Buffer>,
  maxBytes: number,
): Promise<{ tail: Uint8Array; lines: number }> {
  const pieces: Buffer[] = [];
  let [kept, lines] = [0, 0];
  for await (const piece of log) {
    pieces.push(piece);
    kept += piece.length;
    for (let at = piece.indexOf('\n'); at !== -1; at = piece.indexOf('\n', at + 1)) lines++;
    while (pieces[0] && kept - pieces[0].length >= maxBytes) kept -= pieces.shift()?.length ?? 0;
  }
  return { tail: Buffer.concat(pieces).subarray(-maxBytes), lines };
}
