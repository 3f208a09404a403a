// Appends the note of the input, if there is one, to a file on the mounted volume, and returns the file.
import { appendFile, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Job } from 'millrace';

export default async function note({ input }: Job<{ note?: string }>) {
  const file = join(process.env['MILLRACE_MOUNT'] ?? '/runpod-volume', 'notes');
  if (input.note !== undefined) await appendFile(file, `${input.note} `);
  return { notes: await readFile(file, 'utf8') };
}
