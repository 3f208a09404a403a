// A real device-side assert on this machine's GPU: one job fails, and no other. Needs PyTorch and `npm run build`.
import { spawnSync } from 'node:child_process';
import { expect, it } from 'vitest';
import { z } from 'zod';
import { PlatformProcess } from '../support/processes.ts';

const CHECK = 'import torch, sys; sys.exit(0 if torch.cuda.is_available() else 1)';
const hasTorch = spawnSync('python3', ['-c', CHECK]).status === 0;
if (!hasTorch) console.log('context-loss.test.ts is left out: python3 has no PyTorch with CUDA');

const recordSchema = z.looseObject({
  status: z.string(),
  attempt: z.number().optional(),
  executionTime: z.number(),
  output: z.looseObject({ pid: z.number() }).optional(),
  error: z.looseObject({ code: z.string() }).optional(),
  usage: z.looseObject({ gpu: z.looseObject({ vramPeakBytes: z.number().optional() }) }).optional(),
});

it.skipIf(!hasTorch)(
  'loses one job to a device-side assert, and counts no start as the time of a job',
  { timeout: 300_000 },
  async () => {
    const args = ['--retry-base-ms', '1'];
    const platform = await PlatformProcess.start({ endpoints: ['torch'], args });
    try {
      const worker = platform.startWorker('torch', 'torch-ops.ts');
      const run = async (op: string) => {
        const answer = await platform.post('/v2/torch/runsync?wait=200000', { input: { op } });
        return recordSchema.parse(await answer.json());
      };
      const first = await run('work');
      expect(first.status).toBe('COMPLETED');
      expect(first.usage?.gpu.vramPeakBytes).not.toBe(0);
      const lost = await run('lose');
      expect(lost).toMatchObject({ status: 'FAILED', error: { code: 'gpu_context_lost' } });
      const startMs = Number(await worker.find(/"startMs":(\d+)/));
      for (let job = 0; job < 20; job += 1) {
        const { attempt, executionTime, output, status, usage } = await run('work');
        expect({ attempt, status }).toEqual({ attempt: 1, status: 'COMPLETED' });
        expect(output?.pid).not.toBe(first.output?.pid);
        expect(executionTime).toBeLessThan(startMs);
        expect(usage?.gpu.vramPeakBytes).not.toBe(0);
      }
    } finally {
      await platform.close();
    }
  },
);
