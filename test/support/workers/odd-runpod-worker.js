// A third-party RunPod worker: one job at a time over plain HTTP, with one optional fault.
// `node odd-runpod-worker.js [oddity]`.
import { setTimeout as sleep } from 'node:timers/promises';

const oddity = process.argv[2] ?? 'none';
const { env } = process;
const MAX_TEXT = 900_000;
let running;
let isLeaving = false;
process.on('SIGTERM', () => {
  isLeaving = true;
});

function fill(template, id) {
  return template.replaceAll('$RUNPOD_POD_ID', env.RUNPOD_POD_ID).replaceAll('$ID', id);
}

async function call(method, url, body) {
  const headers = {
    authorization: env.RUNPOD_AI_API_KEY,
    'content-type': 'application/x-www-form-urlencoded',
  };
  const response = await fetch(url, { method, headers, body: body && JSON.stringify(body) });
  return { status: response.status, text: await response.text() };
}

/** Repeats the post until the platform accepts it. */
async function post(url, body) {
  for (;;) {
    const { status } = await call('POST', url, body).catch(() => ({ status: 0 }));
    if (status === 200) return;
    await sleep(100);
  }
}

async function run({ id, input }) {
  const done = (body, isStream = false) =>
    post(`${fill(env.RUNPOD_WEBHOOK_POST_OUTPUT, id)}&isStream=${isStream}`, body);
  const stream = (output) =>
    post(`${fill(env.RUNPOD_WEBHOOK_POST_STREAM, id)}&isStream=false`, { output });
  if (input.do === 'fail') return done({ error: JSON.stringify({ error_message: input.message }) });
  if (input.do === 'echo') {
    await sleep(input.ms ?? 0);
    if (!oddity.startsWith('yields')) return done({ output: input.value });
    await stream(oddity === 'yields another value' ? 'another' : input.value);
    return done({ output: [] }, true);
  }
  for (let index = 0; index < input.count; index++) {
    const value = { index, text: 'x'.repeat(input.bytes) };
    const isWhole = input.bytes < MAX_TEXT || oddity === 'posts chunks of any size';
    const json = JSON.stringify(value);
    const pieces = isWhole ? [value] : json.match(new RegExp(`.{1,${MAX_TEXT}}`, 'gs'));
    if (oddity === 'loses the rest of large chunks') pieces.length = 1;
    for (const piece of pieces) await stream(piece);
  }
  return done({ output: [] }, true);
}

async function pingForEver() {
  for (;;) {
    const names = running === undefined ? '' : `&job_id=${running}`;
    await call('GET', `${fill(env.RUNPOD_WEBHOOK_PING, '')}${names}`).catch(() => {});
    await sleep(Number(env.RUNPOD_PING_INTERVAL));
  }
}

void pingForEver();
while (!isLeaving) {
  const url = `${fill(env.RUNPOD_WEBHOOK_GET_JOB, env.RUNPOD_POD_ID)}&job_in_progress=0`;
  const { status, text } = await call('GET', url).catch(() => ({ status: 0 }));
  if (isLeaving && oddity === 'drops late jobs') break;
  if (status === 200) {
    const job = JSON.parse(text);
    running = job.id;
    await run(job);
    running = undefined;
  } else if (status !== 204) await sleep(1_000);
}
process.exit(0);
