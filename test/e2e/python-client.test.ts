// The Python client (clients/python) on a real platform: Debian's python3 runs programs that use it.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { deriveEndpointSecret, WebhookSigner } from '../../src/queue/webhooks/webhook-sender.ts';
import { EndpointCaller } from '../support/endpoint-caller.ts';
import { Gate } from '../support/network/gate.ts';
import { PlatformProcess } from '../support/processes.ts';
import { leaveOutWithoutPython } from '../support/python.ts';

const SECRET = 'a secret of webhooks';
const CLIENT = resolve(import.meta.dirname, '../../clients/python');

let platform: PlatformProcess;

class Program {
  readonly #child: ChildProcess;
  readonly #lines: AsyncIterator<string>;
  #errors = '';

  /** `client` is there, and `show` prints a value as a line of JSON. */
  constructor(code: string, url: string) {
    const head = [
      'import json, os, sys, threading',
      'from millrace_client import *',
      'client = Client(os.environ["URL"], "script", key=os.environ["KEY"], repeats=30)',
      'def show(value): print(json.dumps(value), flush=True)',
    ];
    this.#child = spawn('python3', ['-W', 'error', '-c', `${head.join('\n')}\n${code}`], {
      env: { ...process.env, PYTHONPATH: CLIENT, URL: url, KEY: platform.adminKey },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const { stderr, stdout } = this.#child;
    if (!stdout || !stderr) throw new Error('the program has no output');
    stderr.on('data', (data) => {
      this.#errors += data;
    });
    this.#lines = createInterface({ input: stdout })[Symbol.asyncIterator]();
    onTestFinished(() => {
      this.#child.kill('SIGKILL');
    });
  }

  /** The next value. @throws Error with the traceback if the program ends before */
  async next(): Promise<unknown> {
    const { done, value } = await this.#lines.next();
    if (!done) return JSON.parse(value);
    if (this.#child.exitCode === null) await once(this.#child, 'exit');
    throw new Error(`the program ended with ${this.#child.exitCode}: ${this.#errors}`);
  }
}

const run = (code: string, url = platform.url) => new Program(code, url);

describe.skipIf(leaveOutWithoutPython('e2e/python-client'))('the Python client', () => {
  beforeAll(async () => {
    platform = await PlatformProcess.start({ endpoints: ['script', 'echo'] });
    platform.startWorker('script', 'api-script.ts');
    platform.startWorker('echo', '../../../handlers/echo.ts');
    await new EndpointCaller(platform, 'script').untilServed();
    await new EndpointCaller(platform, 'echo').untilServed();
  });
  afterAll(() => platform.close());

  it('submits jobs, waits for them, and tells how they end', async () => {
    const program = run(`
show(client.runsync({"steps": [], "answer": 7})["output"])
job = client.run({"steps": [{"do": "throw", "message": "no", "as": "non-retryable"}]}, policy={"tags": ["nightly"]})["id"]
show(client.wait(job)["error"]["message"])
show([each["id"] == job for each in client.list(tags="nightly")])
show([each["status"] for each in client.run_many({"input": {"steps": [], "answer": n}} for n in range(150))].count("IN_QUEUE"))
outputs = client.run_all([{"steps": [], "answer": n} for n in range(20)] + [{"steps": [{"do": "throw", "message": "no", "as": "non-retryable"}]}])
show([outputs[:20] == list(range(20)), outputs[20].record["status"]])
`);
    expect(await program.next()).toBe(7);
    expect(await program.next()).toBe('no');
    expect(await program.next()).toEqual([true]);
    expect(await program.next()).toBe(150);
    expect(await program.next()).toEqual([true, 'FAILED']);
  });

  it('submits one job with one key, and names what the platform refuses', async () => {
    const program = run(`
show(client.run({"steps": []}, idempotency_key="k")["id"] == client.run({"steps": []}, idempotency_key="k")["id"])
for call in [lambda: client.run({"steps": ["other"]}, idempotency_key="k"), lambda: client.status("none"), lambda: client.run({}, policy={"ttl": -1})]:
    try: call()
    except ApiError as error: show([error.status, error.code, error.problem.get("errors")])
try: Client("http://127.0.0.1:9", "script", repeats=0).status("x")
except UnreachableError as error: show(str(error))
`);
    expect(await program.next()).toBe(true);
    expect(await program.next()).toEqual([409, 'conflict', null]);
    expect(await program.next()).toEqual([404, 'not_found', null]);
    expect(await program.next()).toEqual([422, 'invalid', [expect.stringMatching(/policy\.ttl/)]]);
    expect(await program.next()).toMatch(/^http:\/\/127\.0\.0\.1:9\/v2\/script does not respond/);
  });

  it('reads a stream to its end while the platform is killed, and large values whole', async () => {
    const gate = new Gate(platform.folder);
    const large = 'ä'.repeat(1_500_000);
    const steps = [
      ...[1, 2].map((value) => ({ do: 'yield', value, metrics: { n: value } })),
      { do: 'wait', file: gate.path },
      { do: 'yield', value: 3 },
      { do: 'yield', value: [large] },
    ];
    const id = await new EndpointCaller(platform, 'script').run({ steps });
    const program = run(`
for chunk in client.stream("${id}"):
    show(chunk.output if chunk.output == 3 or chunk.metrics else len(chunk.output[0]))
show(client.status("${id}")["status"])
`);
    expect(await program.next()).toBe(1);
    expect(await program.next()).toBe(2);
    await platform.kill();
    gate.open();
    await platform.restart();
    expect(await program.next()).toBe(3);
    expect(await program.next()).toBe(1_500_000);
    expect(await program.next()).toBe('COMPLETED');
  });

  it('submits one job although the answer to the submission was lost', async () => {
    let calls = 0;
    const cutting = createServer(async (request, response) => {
      const chunks = await Array.fromAsync(request);
      calls += 1;
      const answer = await fetch(`${platform.url}${request.url}`, {
        method: request.method ?? 'GET',
        headers: {
          authorization: request.headers.authorization ?? '',
          'content-type': 'application/json',
        },
        body: Buffer.concat(chunks),
      });
      if (calls === 1) return void request.socket.destroy();
      response.end(await answer.text());
    });
    onTestFinished(() => void cutting.close());
    await once(cutting.listen(0, '127.0.0.1'), 'listening');
    const address = cutting.address();
    const port = typeof address === 'object' ? address?.port : undefined;
    const program = run(
      'show(client.run({"steps": []}, policy={"tags": ["lost-answer"]})["id"])',
      `http://127.0.0.1:${port}`,
    );
    const id = await program.next();
    expect(calls).toBe(2);
    const { jobs } = await new EndpointCaller(platform, 'script').list('?tags=lost-answer');
    expect(jobs.map((job) => job.id)).toEqual([id]);
  });

  it('submits and cancels flows', async () => {
    const program = run(`
flow = client.run_flow([{"name": "a", "input": {"steps": [], "answer": 4}}, {"name": "b", "input": {"steps": []}, "after": [{"job": "a", "as": "answer"}]}])
show(client.wait(flow["jobs"][1]["id"])["output"])
show(client.flow(flow["id"])["status"])
waiting = client.run_flow([{"name": "a", "input": {"steps": [{"do": "wait", "file": "/none"}]}}, {"name": "b", "input": {}, "after": ["a"]}])
client.cancel_flow(waiting["id"])
show(client.wait(waiting["jobs"][1]["id"])["status"])
`);
    expect(await program.next()).toBe(4);
    expect(await program.next()).toBe('COMPLETED');
    expect(await program.next()).toBe('CANCELLED');
  });

  it('runs a batch and reads each result once', async () => {
    const program = run(`
client = Client(os.environ["URL"], "echo", key=os.environ["KEY"])
batch = client.run_batch({"custom_id": f"line-{n}", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "m", "messages": []}} for n in range(30))
done = client.wait_for_batch(batch["id"], every=0.1)
show(done["request_counts"])
show(sorted(line["custom_id"] for line in client.batch_results(batch["id"])) == sorted(f"line-{n}" for n in range(30)))
try: client.run_batch([{"custom_id": 1}])
except ApiError as error: show([error.status, error.problem["detail"]])
`);
    expect(await program.next()).toEqual({ total: 30, completed: 30, failed: 0 });
    expect(await program.next()).toBe(true);
    expect(await program.next()).toEqual([400, expect.stringMatching(/line 1: custom_id/)]);
  });

  it('verifies webhooks as the platform signs them', async () => {
    const secret = deriveEndpointSecret(SECRET, 'script');
    const body = '{"id":"x","status":"COMPLETED"}';
    const signer = new WebhookSigner([SECRET], {
      id: 'd-1',
      endpointId: 'script',
      now: Date.now(),
    });
    signer.update(Buffer.from(body));
    const given = JSON.stringify([signer.finish(), secret, body]);
    const program = run(`
headers, secret, body = json.loads(${JSON.stringify(given)})
body = body.encode()
show(verify_webhook(body, headers, secret)["status"])
other = "whsec_" + "A" * 43 + "="
show(verify_webhook(body, headers, [other, secret])["status"])
for args in [(body + b" ", headers, secret), (body, headers, other), (body, {}, secret)]:
    try: verify_webhook(*args)
    except WebhookRefusedError as error: show(str(error))
try: verify_webhook(body, headers, secret, now=10)
except WebhookRefusedError as error: show(str(error))
`);
    expect(await program.next()).toBe('COMPLETED');
    expect(await program.next()).toBe('COMPLETED');
    expect(await program.next()).toMatch(/not signed with this secret/);
    expect(await program.next()).toMatch(/not signed with this secret/);
    expect(await program.next()).toMatch(/has no valid webhook-id/);
    expect(await program.next()).toMatch(/signed too long ago/);
  });
});
