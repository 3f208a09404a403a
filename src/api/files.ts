// Sends a stored file part by part, at the client's pace.
import type { FastifyReply } from 'fastify';
import type { StoredFile } from '../queue/batches/batch-record.ts';
import { raiseNoFile } from '../queue/batches/files.ts';
import type { Queues } from '../queue/queues.ts';
import { loadInFlight, takeOver, writeSlices } from './http/byte-reply.ts';
import { abortWhenGone } from './http/problem-reply.ts';

type SentFile = Pick<StoredFile, 'bytes' | 'endpointId' | 'id' | 'name' | 'parts'>;

/** As bytes: nothing here may run in a browser. */
const FILE_MEDIA_TYPE = 'application/octet-stream';

/** A file that is removed meanwhile ends in a cut connection: it must not look complete. */
export async function sendFile(
  reply: FastifyReply,
  { files }: Pick<Queues, 'files'>,
  file: SentFile,
): Promise<FastifyReply> {
  const gone = abortWhenGone(reply.raw);
  const written = { bytes: 0 };
  for (let index = 0; index < file.parts && !gone.aborted; index++) {
    const loaded = await loadInFlight(reply, {
      signal: () => gone,
      written,
      sizeOf: (part) => part?.length ?? 0,
      load: () => files.part(file, index),
    });
    if (!loaded) break;
    try {
      if (!loaded.value) return cut(reply, file);
      if (index === 0) begin(reply, file);
      await writeSlices(reply.raw, [loaded.value], { signal: gone, written });
    } finally {
      loaded.claim.release();
    }
  }
  if (!reply.sent) begin(reply, file);
  reply.raw.end();
  return reply;
}

function begin(reply: FastifyReply, { bytes, name }: SentFile): void {
  reply.header('content-type', FILE_MEDIA_TYPE);
  const plain = name.replace(/[^\w.-]/g, '_');
  reply.header('content-disposition', `attachment; filename="${plain}"`);
  takeOver(reply).setHeader('content-length', bytes);
}

function cut(reply: FastifyReply, file: SentFile): FastifyReply {
  if (!reply.sent) raiseNoFile(file);
  reply.raw.destroy();
  return reply;
}
