// Collects the chunks of a job as they come, up to what a page can hold.
import { ApiCaller } from '../../../src/client/api-caller.ts';
import { readStream } from '../../../src/client/jobs/job-reads.ts';
import type { StreamChunk } from '../../../src/client.ts';
import { fillPath } from '../../../src/wire/routes/route.ts';
import { JOB_ROUTES } from '../../../src/wire/routes/routes.ts';
import { send } from '../platform/calls.ts';

/** Goes on over outages of the platform. */
export const patientCaller = new ApiCaller({ url: location.origin, repeats: 1_000, fetch: send });

/** A job's chunks may have 1 GB; a page reads no further. */
export const READ_BOUNDS = { chunks: 100_000, characters: 50_000_000 };

/** Chunks that arrive in this time are drawn together. */
const DRAW_EVERY_MS = 100;

interface ChunkReading {
  endpoint: string;
  job: string;
  signal: AbortSignal;
  /** A new list for each drawing; those of an attempt that began again are void. */
  onChange: (chunks: readonly StreamChunk[]) => void;
}

/** Resolves when the job has ended, or at the bounds: then with true. */
export async function collectChunks(reading: ChunkReading): Promise<boolean> {
  const { endpoint, job, onChange, signal } = reading;
  const path = fillPath(JOB_ROUTES.streamJob, { endpoint, job });
  const chunks: StreamChunk[] = [];
  let attempt = 0;
  let characters = 0;
  let drawnAt = 0;
  for await (const chunk of readStream<StreamChunk['output']>(patientCaller, path, { signal })) {
    if (chunk.attempt !== attempt) chunks.length = 0;
    attempt = chunk.attempt;
    chunks.push(chunk);
    characters += typeof chunk.output === 'string' ? chunk.output.length : 100;
    if (chunks.length >= READ_BOUNDS.chunks || characters >= READ_BOUNDS.characters) {
      onChange(chunks);
      return true;
    }
    if (Date.now() - drawnAt < DRAW_EVERY_MS) continue;
    onChange(chunks.slice());
    drawnAt = Date.now();
    // Lets the page draw between chunks that are here already.
    await new Promise((resolve) => setTimeout(resolve));
  }
  onChange(chunks);
  return false;
}
