// GET /v1/events through the client, with a real worker, over a platform that is killed and starts again.
import { expect, it, onTestFinished } from 'vitest';
import { createClient, createPlatform, type TopicEvent } from '../../../src/client.ts';
import { PlatformProcess } from '../../support/processes.ts';

it('watches an endpoint and a job over a killed platform, to the end of the job', async () => {
  const platform = await PlatformProcess.start({ endpoints: ['script'] });
  onTestFinished(() => platform.close());
  const { url } = platform;
  const access = { url, key: platform.adminKey };
  const jobs = createClient({ ...access, endpoint: 'script' });
  const { id } = await jobs.run({ steps: [{ do: 'yield', value: 1 }] });
  const states: string[] = [];
  const events = createPlatform(access).events(['overview', `job:script/${id}`], {
    onConnection: (state) => states.push(state),
  });
  const until = async (isWanted: (event: TopicEvent) => boolean) => {
    for await (const event of { [Symbol.asyncIterator]: () => ({ next: () => events.next() }) }) {
      if (isWanted(event)) return event;
    }
    throw new Error('the events have ended');
  };
  const isJob = (status: string) => (event: TopicEvent) =>
    event.topic.startsWith('job:') && JSON.stringify(event.data).includes(`"status":"${status}"`);
  await until(isJob('IN_QUEUE'));
  await platform.kill();
  await platform.restart();
  await until(isJob('IN_QUEUE'));
  platform.startWorker('script', 'api-script.ts', '--unsupervised');
  await until(isJob('COMPLETED'));
  await until(({ topic }) => topic === 'overview');
  expect(states.slice(0, 3)).toEqual(['open', 'ended', 'open']);
  await events.return();
});
