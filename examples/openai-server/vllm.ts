// vLLM, with its sleep mode: while another model needs the GPU, its weights are in the host's memory.
import { createModelServer } from 'millrace/process';
import { completeWith } from './complete.ts';

const model = process.env['MODEL'] ?? 'Qwen/Qwen3-0.6B';

export default completeWith(
  createModelServer({
    command: 'vllm',
    args: ['serve', model, '--host', '127.0.0.1', '--port', '{port}', '--enable-sleep-mode'],
    // vLLM has its paths for sleep only in this mode. Nobody but this machine reaches them.
    env: { VLLM_SERVER_DEV_MODE: '1' },
    sleep: '/sleep?level=1',
    wake: '/wake_up',
  }),
  model,
);
