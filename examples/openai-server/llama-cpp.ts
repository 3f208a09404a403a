// The server of llama.cpp. It has no sleep mode: the NVIDIA driver parks it.
import { createModelServer } from 'millrace/process';
import { completeWith } from './complete.ts';

/** A file in the format GGUF. */
const model = process.env['MODEL'] ?? 'model.gguf';

export default completeWith(
  createModelServer({
    command: 'llama-server',
    args: ['--model', model, '--host', '127.0.0.1', '--port', '{port}', '--n-gpu-layers', '99'],
  }),
);
