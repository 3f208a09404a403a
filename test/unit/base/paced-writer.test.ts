import { describe, expect, it } from 'vitest';
import { type MessageSink, PacedWriter } from '../../../src/base/paced-writer.ts';

/** A stream whose reader takes a message only when the test says so. */
class SlowSink implements MessageSink<string> {
  readonly written: string[] = [];
  readonly #unread: (() => void)[] = [];

  write(message: string, sent: () => void): void {
    this.written.push(message);
    this.#unread.push(sent);
  }

  async read(): Promise<void> {
    this.#unread.shift()?.();
    await new Promise(setImmediate);
  }
}

const never = new AbortController().signal;

function open() {
  const sink = new SlowSink();
  const closing = new AbortController();
  return { sink, closing, writer: new PacedWriter(sink, closing.signal) };
}

describe('a paced writer', () => {
  it('writes the next message of a series when the stream has taken the previous one', async () => {
    const { sink, writer } = open();
    const written = writer.writeSeries(['a', 'b'], never);
    await new Promise(setImmediate);
    expect(sink.written).toEqual(['a']);
    await sink.read();
    expect(sink.written).toEqual(['a', 'b']);
    await sink.read();
    await written;
  });

  it('writes one series after another', async () => {
    const { sink, writer } = open();
    void writer.writeSeries(['a', 'b'], never);
    void writer.writeSeries(['c'], never);
    for (let i = 0; i < 3; i++) await sink.read();
    expect(sink.written).toEqual(['a', 'b', 'c']);
  });

  it('writes urgent messages before every series', async () => {
    const { sink, writer } = open();
    void writer.writeSeries(['a', 'b'], never);
    await new Promise(setImmediate);
    void writer.writeNow('now');
    expect(sink.written).toEqual(['a', 'now']);
  });

  it('creates no message of a series before its turn', async () => {
    const { sink, writer } = open();
    const made: string[] = [];
    function* make() {
      for (const message of ['a', 'b', 'c']) {
        made.push(message);
        yield message;
      }
    }
    void writer.writeSeries(make(), never);
    await new Promise(setImmediate);
    await sink.read();
    expect(made).toEqual(['a', 'b']);
  });

  it('stops a cancelled series between two messages and continues with the next', async () => {
    const { sink, writer } = open();
    const gone = new AbortController();
    const stopped = writer.writeSeries(['a', 'b'], gone.signal);
    void writer.writeSeries(['c'], never);
    await new Promise(setImmediate);
    gone.abort();
    await sink.read();
    await stopped;
    expect(sink.written).toEqual(['a', 'c']);
  });

  it('does not wait when the stream is closed', async () => {
    const { closing, sink, writer } = open();
    const series = writer.writeSeries(['a', 'b'], never);
    const urgent = writer.writeNow('now');
    await new Promise(setImmediate);
    closing.abort();
    await Promise.all([series, urgent, writer.writeNow('late'), writer.idle()]);
    expect(sink.written).toEqual(['now', 'a']);
  });

  it('is idle when all series are written', async () => {
    const { sink, writer } = open();
    let isIdle = false;
    void writer.writeSeries(['a'], never);
    void writer.idle().then(() => {
      isIdle = true;
    });
    await new Promise(setImmediate);
    expect(isIdle).toBe(false);
    await sink.read();
    expect(isIdle).toBe(true);
  });
});
