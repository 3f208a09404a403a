// A small server in Python that stands in for a real one, so that the example needs no GPU.
import { fileURLToPath } from 'node:url';
import { createModelServer } from 'millrace/process';
import { completeWith } from './complete.ts';

const program = fileURLToPath(new URL('./small_server.py', import.meta.url));

export default completeWith(
  createModelServer({ command: 'python3', args: [program, '--port', '{port}'] }),
);
