// Inputs, outputs, chunks and logs.
import { beforeEach, describe, expect, it } from 'vitest';
import type {
  JobKey,
  Reader,
  StagedPayload,
  Store,
  StoredJob,
  Transaction,
  UnusedPayload,
  UploadedPayload,
} from '../../../src/store/store.ts';
import { makeDelivery, makeJob } from '../../support/store/stored-jobs.ts';
import { bytesOf, keyOf, readJob, store, textOf } from './store-under-test.ts';

export function describePayloads(): void {
  it('include an input byte for byte', async () => {
    const input = Uint8Array.from({ length: 300_000 }, (_, i) => i % 256);
    await store.write((tx) => tx.insertJob(makeJob({ id: 'a' }), input));
    expect(await store.read((tx) => tx.input(keyOf('a')))).toEqual(input);
    expect(await store.read((tx) => tx.input(keyOf('b')))).toBeUndefined();
    const readUpTo = (maxBytes: number) =>
      store.read((tx) => tx.payloadUpTo('input', keyOf('a'), maxBytes));
    expect([await readUpTo(299_999), await readUpTo(300_000)]).toEqual([300_000, input]);
  });

  it('include the inputs of several jobs, or the sizes of large ones', async () => {
    const inputs = new Map(
      Array.from({ length: 70 }, (_, i) => [`${i}`, new Uint8Array(i * 40).fill(i)] as const),
    );
    for (const [id, input] of inputs) {
      await store.write((tx) => tx.insertJob(makeJob({ id }), input));
    }
    const readAll = (ids: readonly string[]) =>
      store.read((tx) => tx.inputsUpTo(keyOf('0').endpointId, ids, 2_000));
    const ids = [...inputs.keys()];
    const expected = new Map(
      [...inputs].map(([id, input]) => [id, input.length > 2_000 ? input.length : input]),
    );
    expect(await readAll([...ids, 'gone'])).toEqual(expected);
    expect(await readAll(['69'])).toEqual(new Map([['69', 2_760]]));
    expect(await readAll([])).toEqual(new Map());
  });

  it('are previewed with code and message of the error', async () => {
    const error = { code: 'handler_error', message: 'a "b"\n ü\u0001' } as const;
    const notes = [{ at: 1, event: 'retried', run: 2, attempt: 1 }] as const;
    const failed: Partial<StoredJob> = {
      ...{ status: 'FAILED', notes, error: { ...error, stack: 's'.repeat(9_000), attempts: [] } },
    };
    const preview = (id: string) => store.read((tx) => tx.jobPreview(keyOf(id), 2_000));
    await store.write((tx) => tx.insertJob(makeJob({ id: 'a', ...failed }), bytesOf('{"n":1}')));
    await store.write((tx) => tx.insertJob(makeJob({ id: 'b' }), new Uint8Array(2_001)));
    expect(await preview('a')).toMatchObject({ error, notes, input: bytesOf('{"n":1}') });
    expect(await preview('b')).toEqual({ error: null, notes: [], input: 2_001 });
    expect(await preview('c')).toBeUndefined();
  });

  it('include an input that was replaced, by a smaller or a larger one', async () => {
    const inputs = [10, 5_000, 2_500_000].map((size) => new Uint8Array(size).fill(size % 256));
    for (const [index, input] of [...inputs, ...inputs.toReversed()].entries()) {
      const job = makeJob({ id: `replaced-${index}` });
      const read = async () => (await store.read((tx) => tx.input(job))) ?? bytesOf('none');
      await store.write((tx) => tx.insertJob(job, bytesOf('{}')));
      for (const other of inputs) {
        await store.write((tx) => tx.replaceInput(job, other));
        expect(Buffer.compare(await read(), other)).toBe(0);
      }
      await store.write((tx) => tx.replaceInput(job, input));
      expect(Buffer.compare(await read(), input)).toBe(0);
    }
  });

  it('may have many MB, and replace a longer payload completely', async () => {
    const large = Uint8Array.from({ length: 3_500_000 }, (_, index) => index % 251);
    const shorter = large.subarray(0, 1_048_577);
    await store.write((tx) => tx.insertJob(makeJob({ id: 'large' }), large));
    const key = keyOf('large');
    for (const output of [large, shorter]) {
      await store.write((tx) => tx.putOutput(key, output));
      const found = await store.read((tx) => tx.output(key));
      expect(Buffer.compare(found ?? Buffer.alloc(0), output)).toBe(0);
    }
    const input = await store.read((tx) => tx.input(key));
    expect(Buffer.compare(input ?? Buffer.alloc(0), large)).toBe(0);
  });

  describe('in parts', () => {
    const parts = [1, 2, 3].map((value) => new Uint8Array(400_000).fill(value));
    const whole = Buffer.concat(parts);
    const upload = (kind: 'input' | 'output', id: string, from = parts) =>
      uploadTo(store, { kind, key: keyOf(id), parts: from });
    const listUnused = () => store.read((tx) => tx.unusedPayloads(10));
    const unused = ({ bytes: _, ...payload }: UploadedPayload) => payload;
    /** In steps. */
    const deleteAll = async (payload: UnusedPayload) => {
      const isThere = async () =>
        (await listUnused()).some(({ origin }) => origin === payload.origin);
      while (await isThere()) await store.write((tx) => tx.deleteUnused([payload], 1));
    };
    const readOutput = (id: string) => store.read((tx) => tx.output(keyOf(id)));

    it('are visible when an operation gives them to their job', async () => {
      const input = await upload('input', 'a');
      expect(await store.read((tx) => tx.input(keyOf('a')))).toBeUndefined();
      await store.write((tx) => tx.insertJob(makeJob({ id: 'a' }), input));
      const found = await store.read((tx) => tx.input(keyOf('a')));
      expect(Buffer.compare(found ?? Buffer.alloc(0), whole)).toBe(0);
      expect(await listUnused()).toEqual([]);
      const output = await upload('output', 'a');
      expect([await readOutput('a'), await listUnused()]).toEqual([undefined, [unused(output)]]);
      await store.write((tx) => tx.putOutput(keyOf('a'), output));
      expect(Buffer.compare((await readOutput('a')) ?? Buffer.alloc(0), whole)).toBe(0);
      expect(await store.read((tx) => tx.outputBytes(keyOf('a')))).toBe(1_200_000);
    });

    it('are not mixed with other uploads of the job', async () => {
      await store.write((tx) => tx.insertJob(makeJob({ id: 'a' }), bytesOf('{}')));
      const other = [9, 8].map((value) => new Uint8Array(300_000).fill(value));
      const [first, second] = [await upload('output', 'a'), await upload('output', 'a', other)];
      expect(first.origin).not.toBe(second.origin);
      await store.write((tx) => tx.putOutput(keyOf('a'), second));
      const found = await readOutput('a');
      expect(Buffer.compare(found ?? Buffer.alloc(0), Buffer.concat(other))).toBe(0);
      expect(await listUnused()).toEqual([unused(first)]);
      await deleteAll(first);
      expect(await listUnused()).toEqual([]);
      expect((await readOutput('a'))?.length).toBe(600_000);
    });

    it('stay unused if the operation is undone, and cannot be used after their deletion', async () => {
      const input = await upload('input', 'a');
      const refused = store.write((tx) => {
        tx.insertJob(makeJob({ id: 'a' }), input);
        throw new Error('refused');
      });
      await expect(refused).rejects.toThrow('refused');
      expect(await listUnused()).toEqual([unused(input)]);
      await deleteAll(input);
      const late = store.write((tx) => tx.insertJob(makeJob({ id: 'a' }), input));
      await expect(late).rejects.toThrow('has been deleted');
      await store.write((tx) => tx.addPart(input, 1_200_000, bytesOf('late')));
      expect([await listUnused(), await readJob('a')]).toEqual([[], undefined]);
    });

    it('are deleted in steps after their job was removed', async () => {
      const input = await upload('input', 'a');
      const job = makeJob({ id: 'a' });
      await store.write((tx) => tx.insertJob(job, input));
      await store.write((tx) => tx.removeJob(job));
      expect(await readJob('a')).toBeUndefined();
      expect(await listUnused()).toHaveLength(1);
      const readFirst = () =>
        store.read((tx) => {
          return [tx.input(job), tx.payloadPart('input', job, 0)];
        });
      expect(await readFirst()).toEqual([undefined, undefined]);
      for (const payload of await listUnused()) {
        await deleteAll(payload);
      }
      expect(await listUnused()).toEqual([]);
      expect(await readFirst()).toEqual([undefined, undefined]);
    });
  });

  describe.each([0, 1_024, 1_025, 5_000])('of %i bytes', (length) => {
    const payload = Uint8Array.from({ length }, (_, index) => index % 251);
    const job = makeJob({ id: 'a', webhook: 'https://example.com/' });
    const ended: StoredJob = { ...job, status: 'COMPLETED', outputKind: 'value' };

    function complete(tx: Transaction): void {
      tx.saveJob(job, ended, 0);
      tx.putOutput(job, payload);
    }

    function readAll(tx: Reader): unknown {
      const bytes = tx.outputBytes(job);
      return { input: tx.input(job), output: tx.output(job), bytes };
    }

    it('are returned to the next operation of the commit and after it', async () => {
      const all = { input: payload, output: payload, bytes: length };
      const put = store.write((tx) => {
        tx.insertJob(job, payload);
        complete(tx);
        return tx.outputBytes(job);
      });
      const seen = store.write(readAll);
      expect(await Promise.all([put, seen])).toEqual([length, all]);
      expect(await store.read(readAll)).toEqual(all);
    });

    it('are undone with their operation', async () => {
      await store.write((tx) => tx.insertJob(job, payload));
      const refused = store.write((tx) => {
        complete(tx);
        throw new Error('refused');
      });
      const neighbour = store.write((tx) => tx.saveJob(job, { ...job, attempt: 1 }, 0));
      await expect(refused).rejects.toThrow('refused');
      await neighbour;
      expect(await store.read(readAll)).toEqual({ input: payload, output: undefined, bytes: 0 });
    });

    it('are dropped, in the same operation or later', async () => {
      await store.write((tx) => tx.insertJob(job, payload));
      await store.write((tx) => {
        complete(tx);
        tx.dropOutput(job);
      });
      const none = { input: payload, output: undefined, bytes: 0 };
      expect(await store.read(readAll)).toEqual(none);
      await store.write((tx) => {
        tx.saveJob(ended, job, 0);
        complete(tx);
      });
      await store.write((tx) => tx.dropOutput(job));
      expect(await store.read(readAll)).toEqual(none);
    });

    it('are removed with their job', async () => {
      await store.write((tx) => tx.insertJob(job, payload));
      await store.write(complete);
      await store.write((tx) => tx.removeJob(ended));
      expect(await store.read(readAll)).toEqual({ input: undefined, output: undefined, bytes: 0 });
    });

    it('are part of a delivery whose record refers to the output', async () => {
      const delivery = makeDelivery({ id: 'd', jobId: 'a' });
      await store.write((tx) => tx.insertJob(job, payload));
      await store.write((tx) => {
        complete(tx);
        tx.insertDelivery(delivery, [bytesOf('['), { outputOf: job }, bytesOf(']')]);
      });
      await store.write((tx) => tx.removeJob(ended));
      const parts = await store.read((tx) => {
        const found: Uint8Array[] = [];
        for (let at = 0; ; at++) {
          const part = tx.deliveryPart(delivery, at);
          if (!part) return found;
          found.push(part);
        }
      });
      expect(Buffer.concat(parts)).toEqual(Buffer.concat([bytesOf('['), payload, bytesOf(']')]));
    });
  });

  it.each([
    [2_000, 3_000],
    [2_000, 10],
    [10, 2_000],
  ])('include an output of %i bytes that one of %i replaces in the same commit', async (a, b) => {
    const job = makeJob({ id: 'a' });
    await store.write((tx) => tx.insertJob(job, bytesOf('{}')));
    const outputs = [a, b].map((length, i) => new Uint8Array(length).fill(i + 1));
    const writes = outputs.flatMap((output, index) => [
      store.write((tx) => {
        const now = tx.job(job) ?? job;
        tx.saveJob(now, { ...now, progress: `${index}` }, 0);
        tx.putOutput(job, output);
      }),
      // The rows are written first.
      store.write((tx) => tx.countReady(job.endpointId, 1)),
    ]);
    const found = store.write((tx) => tx.output(job));
    await Promise.all(writes);
    expect(await found).toEqual(outputs[1]);
    expect(await store.read((tx) => tx.output(job))).toEqual(outputs[1]);
  });

  it('include an output that can be replaced and dropped', async () => {
    const put = (text: string) => store.write((tx) => tx.putOutput(keyOf('a'), bytesOf(text)));
    const read = async () => textOf(await store.read((tx) => tx.output(keyOf('a'))));
    await put('1');
    expect(await read()).toBe('1');
    await put('22');
    expect(await read()).toBe('22');
    await put('');
    expect(await read()).toBe('');
    await store.write((tx) => tx.dropOutput(keyOf('a')));
    expect(await read()).toBeUndefined();
  });
}

export function describeChunks(): void {
  /** Three batches: 0 and 1, 2, 3 to 5. */
  const batches = [
    { first: 0, sizes: [3, 4], bytes: bytesOf('"a","bb"') },
    { first: 2, sizes: [2], bytes: bytesOf('{}') },
    { first: 3, sizes: [1, 1, 1], bytes: bytesOf('1,2,3') },
  ];
  const older = { first: 0, sizes: [4], bytes: bytesOf('null') };

  beforeEach(() =>
    store.write((tx) => {
      for (const batch of batches) tx.appendChunks({ ...keyOf('a'), attempt: 2 }, batch);
      tx.appendChunks({ ...keyOf('a'), attempt: 1 }, older);
    }),
  );

  function firsts(from: number, maxBytes = 1_000, attempt = 2): Promise<number[]> {
    const range = { ...keyOf('a'), attempt, from, maxBytes };
    return store.read((tx) => {
      return tx.chunks(range).map((batch) => batch.first);
    });
  }

  it('are returned unchanged, by attempt', async () => {
    const range = { ...keyOf('a'), attempt: 2, from: 0, maxBytes: 1_000 };
    expect(await store.read((tx) => tx.chunks(range))).toEqual(batches);
    expect(await firsts(0, 1_000, 1)).toEqual([0]);
    expect(await firsts(0, 1_000, 3)).toEqual([]);
  });

  it.each([
    [0, [0, 2, 3]],
    [1, [0, 2, 3]],
    [2, [2, 3]],
    [4, [3]],
    [5, [3]],
    [6, []],
  ])(
    'begin with the batch that contains chunk %i, from which they were asked',
    async (from, expected) => {
      expect(await firsts(from)).toEqual(expected);
    },
  );

  it.each([
    [1, [0]],
    [8, [0]],
    [9, [0, 2]],
    [10, [0, 2]],
    [11, [0, 2, 3]],
  ])('end with the batch that reaches their limit of %i bytes', async (maxBytes, expected) => {
    expect(await firsts(0, maxBytes)).toEqual(expected);
  });

  it('may be many', async () => {
    const count = 700;
    await store.write((tx) => {
      for (let first = 0; first < count; first++) {
        const batch = { first, sizes: [2], bytes: bytesOf('{}') };
        tx.appendChunks({ ...keyOf('many'), attempt: 1 }, batch);
      }
    });
    const range = { ...keyOf('many'), attempt: 1, from: 1, maxBytes: 10_000 };
    const all = await store.read((tx) => tx.chunks(range));
    expect(all.map((batch) => batch.first)).toEqual(
      Array.from({ length: count - 1 }, (_, i) => i + 1),
    );
    const some = await store.read((tx) => tx.chunks({ ...range, maxBytes: 1_201 }));
    expect(some).toHaveLength(601);
  });

  it('are refused if they are appended twice', async () => {
    const [batch] = batches;
    if (!batch) throw new Error('there are three');
    const again = store.write((tx) => tx.appendChunks({ ...keyOf('a'), attempt: 2 }, batch));
    await expect(again).rejects.toThrow();
  });

  const append = (attempt: number, count: number, bytes: Uint8Array) =>
    store.write((tx) => {
      for (let first = 0; first < count; first++) {
        tx.appendChunks({ ...keyOf('b'), attempt }, { first, sizes: [1], bytes });
      }
    });
  const listUnused = () => store.read((tx) => tx.unusedPayloads(10));

  it('are deleted by about 1,000 at once if they are small', async () => {
    await append(1, 2_500, bytesOf('1'));
    await store.write((tx) => tx.dropChunks(keyOf('b')));
    const [unused] = await listUnused();
    if (!unused) throw new Error('an unused payload was expected');
    let steps = 0;
    for (; (await listUnused()).length > 0; steps++) {
      await store.write((tx) => tx.deleteUnused([unused], 1_000_000));
    }
    expect(steps).toBe(3);
  });

  it('are deleted at once with their job if they have few bytes', async () => {
    const job = makeJob({ id: 'b' });
    await store.write((tx) => tx.insertJob(job, bytesOf('{}')));
    await append(1, 100, bytesOf('1'));
    await store.write((tx) => tx.removeJob(job));
    expect(await listUnused()).toEqual([]);
  });

  it.each([
    ['bytes', 3, 200_000],
    ['rows', 300, 1],
  ])(
    'become unused if they have many %s, without those of later attempts',
    async (_, count, size) => {
      await append(1, count, new Uint8Array(size));
      await store.write((tx) => tx.dropChunks(keyOf('b')));
      await append(2, 1, bytesOf('1'));
      const [unused] = await listUnused();
      if (!unused) throw new Error('an unused payload was expected');
      expect(unused).toEqual({ ...keyOf('b'), kind: 'chunks', origin: 1 });
      const half = Math.ceil((count * size) / 2);
      await store.write((tx) => tx.deleteUnused([unused], half));
      expect(await listUnused()).toEqual([unused]);
      await store.write((tx) => tx.deleteUnused([unused], half));
      expect(await listUnused()).toEqual([]);
      const range = { ...keyOf('b'), attempt: 2, from: 0, maxBytes: 10 };
      expect(await store.read((tx) => tx.chunks(range))).toHaveLength(1);
    },
  );

  it('are dropped with all attempts of the job', async () => {
    await store.write((tx) => tx.dropChunks(keyOf('a')));
    expect([...(await firsts(0)), ...(await firsts(0, 1_000, 1))]).toEqual([]);
  });
}

export function describeLog(): void {
  beforeEach(() =>
    store.write((tx) => {
      tx.appendLog(keyOf('a'), 0, bytesOf('one\n'));
      tx.appendLog(keyOf('a'), 4, bytesOf('two\nthree\n'));
      tx.appendLog(keyOf('a'), 14, bytesOf('four\n'));
      tx.appendLog(keyOf('b'), 0, bytesOf('other'));
    }),
  );

  it.each([
    [0, 100, 'one\ntwo\nthree\nfour\n'],
    [4, 100, 'two\nthree\nfour\n'],
    [6, 100, 'o\nthree\nfour\n'],
    [6, 4, 'o\nth'],
    [0, 4, 'one\n'],
    [2, 5, 'e\ntwo'],
    [18, 100, '\n'],
    [19, 100, ''],
    [500, 100, ''],
  ])('can be read from byte %i, at most %i bytes', async (from, maxBytes, expected) => {
    const read = await store.read((tx) => tx.log({ ...keyOf('a'), from, maxBytes }));
    expect(textOf(read)).toBe(expected);
  });
}

interface Upload {
  kind: StagedPayload['kind'];
  key: JobKey;
  parts: readonly Uint8Array[];
}

export async function uploadTo(to: Store, { key, kind, parts }: Upload): Promise<UploadedPayload> {
  const [first = new Uint8Array(), ...others] = parts;
  const payload = await to.write((tx) => tx.beginPayload(kind, key, first));
  let at = first.length;
  for (const part of others) {
    await to.write((tx) => tx.addPart(payload, at, part));
    at += part.length;
  }
  return { ...payload, bytes: at };
}
