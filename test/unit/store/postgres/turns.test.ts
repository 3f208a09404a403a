import { describe, expect, it } from 'vitest';
import { Turns } from '../../../../src/store/postgres/postgres.ts';

function play() {
  const turns = new Turns();
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
  return { turns, events, act, end };
}

describe('turns', () => {
  it('reads run together, and a commit alone', async () => {
    const { act, end, events, turns } = play();
    void turns.together(act('a'));
    void turns.together(act('b'));
    void turns.alone(act('C'));
    void turns.together(act('d'));
    await end('');
    expect(events).toEqual(['a', 'b']);
    await end('a');
    expect(events).toEqual(['a', 'b']);
    await end('b');
    expect(events).toEqual(['a', 'b', 'C']);
    await end('C');
    expect(events).toEqual(['a', 'b', 'C', 'd']);
  });

  it('neither waits for what came later', async () => {
    const { act, end, events, turns } = play();
    void turns.alone(act('A'));
    void turns.together(act('b'));
    void turns.alone(act('C'));
    void turns.together(act('d'));
    await end('');
    await end('A');
    await end('b');
    await end('C');
    expect(events).toEqual(['A', 'b', 'C', 'd']);
  });

  it('go on after a failure', async () => {
    const { act, end, events, turns } = play();
    await expect(turns.alone(() => Promise.reject(new Error('no')))).rejects.toThrow('no');
    await expect(turns.together(() => Promise.reject(new Error('no')))).rejects.toThrow('no');
    void turns.alone(act('A'));
    await end('');
    expect(events).toEqual(['A']);
  });
});
