import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { silentLog } from '../../../../src/base/log.ts';
import { parseOptions } from '../../../../src/cli/option-parser.ts';
import { startAbandonedFolders } from '../../../../src/cli/worker/run-worker.ts';
import { workerFlags } from '../../../../src/cli/worker/worker-flags.ts';

let stateDir: string;

beforeEach(() => {
  stateDir = mkdtempSync(join(tmpdir(), 'millrace-left-'));
});

afterEach(() => rmSync(stateDir, { recursive: true }));

function start(changes: { url?: string; stateDir?: string | undefined }) {
  const args = ['--url=http://127.0.0.1:1', '--endpoint=e', '--key=k'];
  const { values } = parseOptions(workerFlags, args);
  const terms = { workerId: 'w', version: '1', devices: [], log: silentLog };
  return startAbandonedFolders({ ...terms, values: { ...values, stateDir, ...changes } });
}

describe('folders of other workers', () => {
  it('are delivered if there is a state folder', async () => {
    const left = await start({});
    expect(left).toBeDefined();
    await left?.close();
  });

  it('are not used without one', async () => {
    expect(await start({ stateDir: undefined })).toBeUndefined();
  });

  it('are not used on RunPod, where a second link would act for the same pod', async () => {
    expect(await start({ url: '' })).toBeUndefined();
  });
});
