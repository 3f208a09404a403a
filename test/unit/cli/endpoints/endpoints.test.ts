import { describe, expect, it } from 'vitest';
import { endpointsCommands } from '../../../../src/cli/endpoints/endpoints.ts';
import { printVerb, runVerb } from '../../../support/runs/verb-run.ts';

const KEY = ['--key', 'mr_key'];

async function print(...args: string[]): Promise<string[]> {
  return (await printVerb(endpointsCommands, args)).trim().split('\n');
}

describe('the environment of a worker', () => {
  it('contains URL templates with a question mark, which RunPod workers do not add', async () => {
    const where = ['--url', 'https://q.example/', '--worker-id', 'pod-1', '--ping-seconds', '20'];

    expect(await print('env', 'image', '--runpod', ...KEY, ...where)).toEqual([
      'RUNPOD_WEBHOOK_GET_JOB=https://q.example/runpod/v2/image/job-take/$ID?',
      'RUNPOD_WEBHOOK_POST_OUTPUT=https://q.example/runpod/v2/image/job-done/$RUNPOD_POD_ID/$ID?',
      'RUNPOD_WEBHOOK_POST_STREAM=https://q.example/runpod/v2/image/job-stream/$RUNPOD_POD_ID/$ID?',
      'RUNPOD_WEBHOOK_PING=https://q.example/runpod/v2/image/ping/$RUNPOD_POD_ID?every=20000',
      'RUNPOD_PING_INTERVAL=20000',
      'RUNPOD_AI_API_KEY=mr_key',
      'RUNPOD_POD_ID=pod-1',
      'RUNPOD_ENDPOINT_ID=image',
    ]);
  });

  it('omits the checks of runpod-python on request', async () => {
    const variable = 'RUNPOD_SKIP_AUTO_SYSTEM_CHECKS=true';
    const terms = ['env', 'image', '--runpod', ...KEY];
    expect(await print(...terms, '--skip-system-checks')).toContain(variable);
    expect(await print(...terms)).not.toContain(variable);
  });

  it('names another worker each time', async () => {
    const named = async () => (await print('env', 'image', '--runpod', ...KEY)).at(-2);

    expect(await named()).toMatch(/^RUNPOD_POD_ID=image-[0-9a-f]{8}$/);
    expect(await named()).not.toBe(await named());
  });

  it('is that of a Millrace worker without --runpod', async () => {
    expect(await print('env', 'echo', ...KEY)).toEqual([
      'MILLRACE_URL=http://127.0.0.1:8000',
      'MILLRACE_ENDPOINT=echo',
      'MILLRACE_KEY=mr_key',
    ]);
  });

  it.each([
    [['env'], '<id> is missing; give the endpoint ID'],
    [['give', 'echo'], 'give: unknown command'],
    [['env', 'a/b'], 'a/b: not an endpoint ID'],
    [['env', 'echo', '--url', 'https://q/?a'], '--url: must be an http or https URL'],
    [['env', 'echo', '--runpod', '--worker-id', 'a/b'], '--worker-id: must be'],
  ])('is refused for %j', async (args, message) => {
    await expect(runVerb(endpointsCommands, [...args, ...KEY])).rejects.toThrow(message);
  });

  it('is refused without a key', async () => {
    await expect(runVerb(endpointsCommands, ['env', 'echo'])).rejects.toThrow(
      '--key KEY is required',
    );
  });
});
