// Reads the end of a Pod's log. The API counts lines, callers count bytes.
import { type ApiClient, KubernetesError } from './api-client.ts';
import { CONTAINER } from './manifests.ts';

const LIMIT_MS = 30_000;
const NEWLINE = 0x0a;
const BAD_REQUEST = 400;
const NOT_FOUND = 404;

/** Empty if the Pod does not exist or has not started. @throws KubernetesError, EngineError */
export async function readLogTail(
  client: ApiClient,
  name: string,
  maxBytes: number,
): Promise<Uint8Array> {
  let tail = new Uint8Array();
  // First as many lines as usually fill the bytes, then as many as possibly can.
  for (const lines of [Math.ceil(maxBytes / 64), maxBytes]) {
    const read = await readLines(client, { name, lines, maxBytes });
    tail = read.tail;
    if (tail.length >= maxBytes || read.lines < lines) break;
  }
  return tail;
}

async function readLines(
  client: ApiClient,
  { lines, maxBytes, name }: { name: string; lines: number; maxBytes: number },
): Promise<{ tail: Uint8Array<ArrayBuffer>; lines: number }> {
  const path = `${await client.pathOf('pods', name)}/log`;
  const query = { container: CONTAINER, tailLines: `${lines}` };
  const pieces: Buffer[] = [];
  let [kept, count] = [0, 0];
  try {
    const signal = AbortSignal.timeout(LIMIT_MS);
    const { body } = await client.open({ method: 'GET', path, query, accept: '*/*', signal });
    for await (const piece of body) {
      const bytes: Buffer = piece;
      pieces.push(bytes);
      kept += bytes.length;
      count += countLines(bytes);
      while (pieces[0] && kept - pieces[0].length >= maxBytes) kept -= pieces.shift()?.length ?? 0;
    }
  } catch (error) {
    const isEmpty =
      error instanceof KubernetesError && [BAD_REQUEST, NOT_FOUND].includes(error.status);
    if (!isEmpty) throw error;
  }
  return { tail: Uint8Array.from(Buffer.concat(pieces).subarray(-maxBytes)), lines: count };
}

function countLines(bytes: Buffer): number {
  return bytes.reduce((count, byte) => (byte === NEWLINE ? count + 1 : count), 0);
}
