import { describe, expect, it } from 'vitest';
import { SharedLock } from '../../../../src/store/postgres/postgres.ts';

function play() {
  const lock = new SharedLock();
  const events: string[] = [];
  const ends = new Map<string, () => void>();
  const act = (name: string) => () => {
    events.push(name);
    return new Promise<void>((resolve) => ends.set(name, resolve));
  };
  const end = async (name: string) => {
    ends.get(name)?.();
    await new Promise(setImmediate);
  };
  return { lock, events, act, end };
}

describe('the lock of reads and commits', () => {
  it('reads run together, and a commit alone', async () => {
    const { act, end, events, lock } = play();
    void lock.together(act('a'));
    void lock.together(act('b'));
    void lock.alone(act('C'));
    void lock.together(act('d'));
    await end('');
    expect(events).toEqual(['a', 'b']);
    await end('a');
    expect(events).toEqual(['a', 'b']);
    await end('b');
    expect(events).toEqual(['a', 'b', 'C']);
    await end('C');
    expect(events).toEqual(['a', 'b', 'C', 'd']);
  });

  it('waits for nothing that came later', async () => {
    const { act, end, events, lock } = play();
    void lock.alone(act('A'));
    void lock.together(act('b'));
    void lock.alone(act('C'));
    void lock.together(act('d'));
    await end('');
    await end('A');
    await end('b');
    await end('C');
    expect(events).toEqual(['A', 'b', 'C', 'd']);
  });

  it('go on after a failure', async () => {
    const { act, end, events, lock } = play();
    await expect(lock.alone(() => Promise.reject(new Error('no')))).rejects.toThrow('no');
    await expect(lock.together(() => Promise.reject(new Error('no')))).rejects.toThrow('no');
    void lock.alone(act('A'));
    await end('');
    expect(events).toEqual(['A']);
  });
});
