// Through the platform by its typed client: keys, a template, an endpoint that scales from nothing to
// three workers and back while 200 jobs run, and the life of a pod. It takes away what it made.

import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { createClient, createPlatform } from 'millrace/client';

const url = process.env['MILLRACE_URL'] ?? 'http://127.0.0.1:8000';
const key = process.env['MILLRACE_KEY'];
const platform = createPlatform({ url, key });
const JOBS = 200;
const LOOK_EVERY_MS = 200;
const TELL_EVERY_MS = 1_000;

function say(text: string): void {
  process.stdout.write(`${text}\n`);
}

const template = await platform.templates.create({
  name: 'slow-echo',
  // For an engine of containers; the process engine runs the handler itself.
  image: 'millrace-worker',
  handler: fileURLToPath(new URL('slow-echo.ts', import.meta.url)),
});
const endpoint = await platform.endpoints.create({
  name: 'tour',
  templateId: template.id,
  workersMax: 3,
  idleTimeout: 2,
  scaler: { type: 'REQUEST_COUNT', perWorker: 20 },
});
say(`endpoint ${endpoint.id} from template ${template.id}: no worker yet`);

const jobsKey = await platform.keys.create({
  name: 'tour: jobs only',
  scopes: [`jobs:read:${endpoint.id}`, `jobs:write:${endpoint.id}`],
});
const jobs = createClient({ url, endpoint: endpoint.id, key: jobsKey.key });
await Promise.all(Array.from({ length: JOBS }, (_, number) => jobs.run({ number })));
say(`${JOBS} jobs submitted, with a key that can do nothing else`);

/** Workers of the endpoint that run now. */
async function countWorkers(): Promise<number> {
  let running = 0;
  for await (const pod of platform.pods.list()) {
    if (pod.endpointId === endpoint.id && pod.status === 'RUNNING') running++;
  }
  return running;
}

for (;;) {
  const [{ jobs: counts }, workers] = [await jobs.health(), await countWorkers()];
  say(`  workers ${workers}, waiting ${counts.inQueue}, completed ${counts.completed}`);
  if (counts.completed === JOBS && workers === 0) break;
  await delay(TELL_EVERY_MS);
}
say('why:');
const { items: decisions } = await platform.endpoints.decisions(endpoint.id).page();
for (const { reason } of decisions.reverse()) say(`  ${reason}`);

let pod = await platform.pods.create({
  name: 'tour',
  image: 'none',
  args: "sh -c 'echo here I am; exec sleep 3600'",
  cpu: { id: 'cpu', vcpuCount: 2, memory: 1 },
});
say(`pod ${pod.id}`);

async function until(status: typeof pod.status): Promise<void> {
  for (;;) {
    pod = await platform.pods.get(pod.id);
    if (pod.status === status)
      return say(`  ${status}: may ${pod.actions.join(', ') || 'nothing'}`);
    await delay(LOOK_EVERY_MS);
  }
}

await until('RUNNING');
say(`  it printed: ${(await platform.pods.log(pod.id)).trim()}`);
await platform.pods.stop(pod.id);
await until('EXITED');
await platform.pods.start(pod.id);
await until('RUNNING');
await platform.pods.restart(pod.id);
await until('RUNNING');
await platform.pods.terminate(pod.id);
await until('TERMINATED');

await platform.endpoints.delete(endpoint.id);
await platform.templates.delete(template.id);
await platform.keys.delete(jobsKey.id);
say('all of it is gone again');
