// One group has submitted 50,000 jobs; the first job of another group does not wait for them.
import { expect, it } from 'vitest';
import { ENDPOINT, Hand, Platform } from '../support/queue-platform.ts';

const BACKLOG = 50_000;

it(`lease the first job of a group among the next two, with ${BACKLOG} of another group queued`, async () => {
  const platform = new Platform({ endpoint: { maxQueued: 2 * BACKLOG } });
  await platform.start();
  try {
    const submit = (group: string) =>
      platform.queue.submissions.submit({
        ...{ endpointId: ENDPOINT, mode: 'run', input: Buffer.from(JSON.stringify(group)) },
        ...{ policy: { group }, idempotency: undefined },
      });
    for (let left = BACKLOG; left > 0; left -= 1_000) {
      await Promise.all(Array.from({ length: 1_000 }, () => submit('a')));
    }
    const hand = new Hand(() => platform.queue.link(ENDPOINT), { id: 'w1', slots: 100 });
    await hand.hello();
    const takeGroup = async () => {
      const [lease] = await hand.take();
      return lease && JSON.parse(Buffer.from(lease.input).toString());
    };
    expect(await takeGroup()).toBe('a');
    await submit('b');
    expect([await takeGroup(), await takeGroup()]).toContain('b');
  } finally {
    await platform.close();
  }
});
