import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock } from '../../src/base/clock.ts';
import { silentLog } from '../../src/base/log.ts';
import { DiskOutbox } from '../../src/worker/outbox/disk-outbox.ts';
import { MemoryOutbox } from '../../src/worker/outbox/outbox.ts';
import { describeOutbox } from './outbox.ts';

describeOutbox('in memory', async () => ({ outbox: new MemoryOutbox(), close: async () => {} }));

describeOutbox('on disk', () => openOnDisk());

describeOutbox('on disk, compacted with every write', () => openOnDisk(0));

async function openOnDisk(compactAboveBytes?: number) {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-outbox-'));
  const outbox = await DiskOutbox.open({
    folder,
    clock: systemClock,
    log: silentLog,
    ...(compactAboveBytes !== undefined && { compactAboveBytes }),
  });
  return {
    outbox,
    async close() {
      await outbox.close();
      await rm(folder, { recursive: true });
    },
  };
}
