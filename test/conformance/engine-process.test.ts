import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLog } from '../../src/base/log.ts';
import { type CgroupHome, findCgroupHome, NO_CGROUPS } from '../../src/engine/process/cgroups.ts';
import { ProcessEngine } from '../../src/engine/process/process-engine.ts';
import type { Device } from '../../src/wire/worker-link.ts';
import { describeEngine } from './engine.ts';

const devices = ['GPU-a', 'GPU-b', 'GPU-c'].map(
  (uuid, index): Device => ({ kind: 'gpu', index, uuid, name: 'pretended', memoryBytes: 1e9 }),
);

function describeProcesses(name: string, cgroups: CgroupHome): void {
  describeEngine({
    name,
    image: 'none',
    node: process.execPath,
    mountRoot: '.',
    addedVariables: [
      'PATH',
      'HOME',
      'TMPDIR',
      'LANG',
      'MILLRACE_RUN',
      'CUDA_VISIBLE_DEVICES',
      'NVIDIA_VISIBLE_DEVICES',
      'HIP_VISIBLE_DEVICES',
    ],
    gpus: devices.map(({ uuid }) => uuid),
    limitsMemory: cgroups.memory !== null,
    async open() {
      const folder = await mkdtemp(join(tmpdir(), 'millrace-engine-'));
      return {
        open: () => new ProcessEngine({ folder, log: silentLog, devices, cgroups }),
        close: () => rm(folder, { recursive: true, force: true }),
      };
    },
  });
}

const found = findCgroupHome();

describeProcesses('of processes without control groups', NO_CGROUPS);
if (found.tracking !== null) describeProcesses('of processes in control groups', found);
