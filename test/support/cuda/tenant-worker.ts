// A worker process of a test: takes turns on a device with others, by the ledger, and says each step before it does it.
// Arguments: folder of the ledger, ID, memory in MB.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { readBootId, readProcess } from '../../../src/base/process/process-table.ts';
import { ParkHelper } from '../../../src/process/park-helper.ts';
import { grantWake, type LedgerEntry, put } from '../../../src/worker/parking/ledger.ts';
import { LedgerFile } from '../../../src/worker/parking/ledger-file.ts';

const HOLDER = `
import ctypes, sys
ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
cuda = ctypes.CDLL("libcuda.so.1"); cuda.cuInit(0)
print(cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(int(sys.argv[1]) * 2**20)), flush=True)
sys.stdin.read()
`;

const [folder = '', id = '', mb = '0'] = process.argv.slice(2);
const device = process.env['CUDA_VISIBLE_DEVICES'] ?? '';
const bytes = Number(mb) * 2 ** 20;
const file = new LedgerFile(folder);
const helper = new ParkHelper(process.env);
const { startTicks = '' } = readProcess(process.pid) ?? {};
const self = { pid: process.pid, startTicks, bootId: readBootId() };

function say(step: string): void {
  process.stdout.write(`${step}\n`);
}

function enter(state: LedgerEntry['state']): Promise<void> {
  const tenant: LedgerEntry = { id, device, process: self, state, bytes, since: Date.now() };
  return file.change((ledger) => [put(ledger, tenant), undefined]);
}

/** Waits for room. */
async function reserve(): Promise<void> {
  for (;;) {
    const isGranted = await file.change(async (ledger) => {
      const memory = await helper.readMemory(device);
      const request = { id, memory, reserveBytes: 0, now: Date.now() };
      const answer = grantWake(ledger, request);
      return answer.kind === 'granted' ? [answer.ledger, true] : [ledger, false];
    });
    if (isGranted) return;
    await delay(2 + Math.random() * 6);
  }
}

await enter('parked');
await reserve();
say('start');
const holder = spawn('python3', ['-c', HOLDER, mb], {
  stdio: ['pipe', 'pipe', 'inherit'],
  detached: true,
});
const [answer] = await once(holder.stdout, 'data');
if (String(answer).trim() !== '0') throw new Error(`the model did not get its memory: ${answer}`);
await enter('resident');
const group = holder.pid ?? 0;
for (;;) {
  say('suspend');
  const suspended = await helper.suspend({ group, device, lockMs: 1_000 });
  say('parked');
  await enter('parked');
  say('reserve');
  await reserve();
  say('resume');
  await helper.resume(suspended, device);
  say('resident');
  await enter('resident');
  say('switch');
}
