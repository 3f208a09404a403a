// Stores large payloads before the operation that gives them to their jobs: in a file if the store has files, otherwise in
// parts, one part in a commit, so that other work waits for one part at most. Also deletes payloads that no job has: those
// of operations that were refused or never ran, and those of removed jobs.
import { giveBack } from '../../base/byte-budget.ts';
import { yieldToLoop } from '../../base/slices.ts';
import {
  ENDING,
  type JobKey,
  PayloadFileError,
  type PayloadFiles,
  type Reader,
  type StagedPayload,
  type Store,
  type Transaction,
  type UnusedPayload,
  type UploadedPayload,
  type WriteOptions,
} from '../../store/store.ts';
import type { QueueSettings } from '../settings.ts';

/** Bytes of a file that are written or read together: commits wait for the disk behind them. */
const PIECE_BYTES = 1_048_576;
/** Bytes that one slice deletes. */
const SLICE_BYTES = 2 * 1_048_576;
/** Most files that one slice removes. */
const SLICE_FILES = 16;
/** Most payloads that one slice deletes. */
const SLICE_PAYLOADS = 128;

interface LargePayloadsOptions {
  store: Store;
  settings: QueueSettings;
  /** Called when a payload may have become unused. Default: ignored. */
  onUnused?: () => void;
}

interface Upload {
  kind: StagedPayload['kind'];
  key: JobKey;
  bytes: Uint8Array;
  /** How its parts are written; `payloadBytes` is added. */
  options?: WriteOptions;
}

export class LargePayloads {
  readonly #store: Store;
  /** Larger payloads are stored before their operation, in a file or in parts of this size. */
  readonly partBytes: number;
  /** Uploads whose operation has not ended. */
  readonly #inUse = new Set<string>();
  /** Unused payloads with a file that could not be removed: others are deleted first. */
  readonly #stuck = new Set<string>();
  readonly #pieces = new PayloadPieces();
  /** Bytes that running uploads have yet to write, in the order in which the uploads began. */
  readonly #leftBytes = new Map<Upload, number>();
  readonly #onUnused: () => void;

  constructor({ onUnused = () => {}, settings, store }: LargePayloadsOptions) {
    this.#onUnused = onUnused;
    this.#store = store;
    this.partBytes = settings.payloadPartBytes;
  }

  /** Whether a payload should be uploaded before its operation. */
  isLarge({ length }: Uint8Array): boolean {
    return length > this.partBytes;
  }

  /**
   * Resolves when the payload is stored. The operation then passes the result to the store instead of the bytes. A file is
   * on disk by then; parts are put on disk by the commit of the operation. Call `release` when the operation has ended,
   * whether it used the payload or not.
   */
  async upload(upload: Upload): Promise<UploadedPayload> {
    const { files } = this.#store;
    // A batch also uploads small inputs, for which a file of their own would cost too much.
    if (!files?.isUsable || !this.isLarge(upload.bytes)) return this.#uploadParts(upload);
    try {
      return await this.#uploadFile(files, upload);
    } catch (error) {
      if (!(error instanceof PayloadFileError)) throw error;
      // Without space for a file there may be enough in the database, or in the reserve for a full disk.
      return this.#uploadParts(upload);
    }
  }

  async #uploadFile(files: PayloadFiles, upload: Upload): Promise<UploadedPayload> {
    const { bytes, key, kind, options } = upload;
    const inUse = this.#inUse;
    let payload: UploadedPayload | undefined;
    try {
      // Its rows are on disk before the file exists, so that a crash leaves no file that no row names.
      const begun = await this.#store.write(
        (tx): UploadedPayload => {
          // The operation may run again.
          if (payload) inUse.delete(nameOf(payload));
          payload = tx.beginFile(kind, key, bytes.length);
          inUse.add(nameOf(payload));
          return payload;
        },
        { ...options, payloadBytes: bytes.length },
      );
      const owner = { endpointId: key.endpointId, kind };
      for (let at = 0; at < bytes.length; at += PIECE_BYTES) {
        const part = bytes.subarray(at, at + PIECE_BYTES);
        const isLast = at + part.length === bytes.length;
        await this.runAlone(owner, () => files.write(begun, { at, bytes: part, isLast }));
      }
      return { ...begun, bytes: bytes.length };
    } catch (error) {
      if (payload) this.release(payload);
      throw error;
    }
  }

  async #uploadParts(upload: Upload): Promise<UploadedPayload> {
    const { bytes, key, kind } = upload;
    const size = this.partBytes;
    const inUse = this.#inUse;
    let payload: UploadedPayload | undefined;
    try {
      const begun = await this.#writePart(upload, 0, (tx): UploadedPayload => {
        // The operation may run again.
        if (payload) inUse.delete(nameOf(payload));
        payload = tx.beginPayload(kind, key, bytes.subarray(0, size));
        inUse.add(nameOf(payload));
        return payload;
      });
      for (let at = size; at < bytes.length; at += size) {
        const part = bytes.subarray(at, at + size);
        await this.#writePart(upload, at, (tx) => tx.addPart(begun, at, part));
      }
      return { ...begun, bytes: bytes.length };
    } catch (error) {
      if (payload) this.release(payload);
      throw error;
    } finally {
      this.#leftBytes.delete(upload);
    }
  }

  #writePart<T>(upload: Upload, at: number, operation: (tx: Transaction) => T): Promise<T> {
    const { bytes, key, kind, options } = upload;
    return this.runAlone({ endpointId: key.endpointId, kind }, async () => {
      this.#leftBytes.set(upload, bytes.length - at);
      const payloadBytes = this.#sumLeft(upload);
      // Nobody sees the part before the commit of the operation that uses the payload, which puts it on disk as well.
      const onDisk = 'later';
      const written = await this.#store.write(operation, { ...options, payloadBytes, onDisk });
      this.#leftBytes.set(upload, Math.max(0, bytes.length - at - this.partBytes));
      return written;
    });
  }

  /**
   * The rest of the upload and of those that began before it. On a full disk all of them must fit, or the parts
   * of the upload would take up the last space in vain.
   */
  #sumLeft(upload: Upload): number {
    let sum = 0;
    for (const [each, bytes] of this.#leftBytes) {
      // On a full disk, the other uploads end.
      if (each === upload || each.options?.onFullDisk === 'proceed') sum += bytes;
      if (each === upload) break;
    }
    return sum;
  }

  /** What no operation has used will be deleted. */
  release(payload: StagedPayload): void {
    this.#inUse.delete(nameOf(payload));
    this.#onUnused();
  }

  /** Runs a large write, or a read of a file, when no other one runs. */
  runAlone<T>(owner: PieceOwner, write: () => Promise<T>): Promise<T> {
    return this.#pieces.run(owner, write);
  }

  /**
   * Reads a payload of this size, from its file or each part in an iteration of the event loop of its own. A payload never
   * changes while its job exists. Undefined if the job is removed meanwhile. @throws PayloadFileError
   */
  async read(
    kind: StagedPayload['kind'],
    key: JobKey,
    bytes: number,
  ): Promise<Uint8Array | undefined> {
    const { files } = this.#store;
    const findFile = () => this.#store.read((tx) => tx.payloadFile(kind, key));
    const file = files && (await findFile());
    if (file) {
      const payload = await this.#readFile(files, file, bytes);
      // Without its file, the job has been removed meanwhile, or the file is lost.
      if (!payload && (await findFile())?.origin === file.origin) throw files.reportLost(file);
      return payload;
    }
    const payload = Buffer.allocUnsafeSlow(bytes);
    let at = 0;
    for (let index = 0; at < bytes; index++) {
      if (index > 0) await yieldToLoop();
      const part = await this.#store.read((tx) => tx.payloadPart(kind, key, index));
      if (!part || at + part.length > bytes) return undefined;
      payload.set(part, at);
      at += part.length;
      giveBack(part);
    }
    return payload;
  }

  /** Undefined if the file is missing or too short. */
  async #readFile(
    files: PayloadFiles,
    file: StagedPayload,
    bytes: number,
  ): Promise<Uint8Array | undefined> {
    const payload = Buffer.allocUnsafeSlow(bytes);
    for (let at = 0; at < bytes; at += PIECE_BYTES) {
      const part = payload.subarray(at, at + PIECE_BYTES);
      if (!(await this.runAlone(file, () => files.read(file, at, part)))) return undefined;
    }
    return payload;
  }

  /**
   * Deletes what no job has, a slice of it: a commit for each payload would be slower than their creation, which
   * shares commits. Returns false if nothing is left.
   */
  async deleteSome(): Promise<boolean> {
    const found = await this.#store.read((tx) => this.#findUnused(tx, SLICE_PAYLOADS));
    if (found.length === 0) {
      this.#stuck.clear();
      return false;
    }
    const unused = await this.#removeFiles(found);
    // What is left over stays for the next slice.
    await this.#store.write((tx) => tx.deleteUnused(unused, SLICE_BYTES), ENDING);
    return true;
  }

  /**
   * Before their rows are deleted: a file that no row names would never go. @returns payloads that have no files any
   * more, perhaps not all of the given ones
   */
  async #removeFiles(unused: readonly UnusedPayload[]): Promise<readonly UnusedPayload[]> {
    const { files } = this.#store;
    if (!files) return unused;
    const filesOf = await this.#store.read((tx) => findFiles(tx, unused));
    const kept = new Set((await files.remove([...filesOf.values()].flat())).map(nameOf));
    const free: UnusedPayload[] = [];
    for (const [payload, found] of filesOf) {
      if (found.some((file) => kept.has(nameOf(file)))) this.#stuck.add(nameOf(payload));
      else free.push(payload);
    }
    return free;
  }

  #findUnused(tx: Reader, limit: number): UnusedPayload[] {
    const some = tx.unusedPayloads(this.#inUse.size + this.#stuck.size + limit);
    const isFree = (name: string) => !this.#inUse.has(name) && !this.#stuck.has(name);
    return some.filter((payload) => isFree(nameOf(payload)));
  }
}

/** The files of the first payloads, as many as one slice removes. */
function findFiles(
  tx: Reader,
  unused: readonly UnusedPayload[],
): Map<UnusedPayload, StagedPayload[]> {
  const found = new Map<UnusedPayload, StagedPayload[]>();
  let count = 0;
  const filesOf = tx.each(unused, (payload) => ({ payload, files: tx.filesOf(payload) }));
  for (const { files, payload } of filesOf) {
    if (count >= SLICE_FILES) break;
    found.set(payload, files);
    count += files.length;
  }
  return found;
}

function nameOf({ endpointId, id, kind, origin }: UnusedPayload): string {
  return `${kind} ${endpointId}/${id} ${origin}`;
}

/** Pieces of outputs in succession while inputs wait. The next piece is that of an input. */
const MAX_OUTPUTS_IN_ROW = 3;

type PieceOwner = Pick<StagedPayload, 'endpointId' | 'kind'>;

/** Runs large writes, and reads of files, one after the other: outputs before inputs, and the endpoints in rotation. */
export class PayloadPieces {
  readonly #waiting = {
    input: new OwnerLanes<() => Promise<void>>(),
    output: new OwnerLanes<() => Promise<void>>(),
  };
  #outputsInRow = 0;
  #isRunning = false;

  /** A write that fails does not stop the ones behind it. */
  run<T>({ endpointId, kind }: PieceOwner, write: () => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#waiting[kind].add(endpointId, async () => {
        try {
          resolve(await write());
        } catch (error) {
          reject(error);
        }
      });
      void this.#runAll();
    });
  }

  async #runAll(): Promise<void> {
    if (this.#isRunning) return;
    this.#isRunning = true;
    for (let next = this.#takeNext(); next; next = this.#takeNext()) await next();
    this.#isRunning = false;
  }

  #takeNext(): (() => Promise<void>) | undefined {
    const { input, output } = this.#waiting;
    const isInputDue = this.#outputsInRow >= MAX_OUTPUTS_IN_ROW && !input.isEmpty;
    if (output.isEmpty || isInputDue) {
      this.#outputsInRow = 0;
      return input.take();
    }
    this.#outputsInRow += 1;
    return output.take();
  }
}

/** Items that wait, taken from one owner after the other. */
class OwnerLanes<T> {
  /** Items of each owner, in the order of arrival; the owner to serve next comes first. */
  readonly #lanes = new Map<string, T[]>();

  get isEmpty(): boolean {
    return this.#lanes.size === 0;
  }

  add(owner: string, item: T): void {
    const lane = this.#lanes.get(owner);
    if (lane) lane.push(item);
    else this.#lanes.set(owner, [item]);
  }

  /** Takes the next item; its owner goes to the end of the rotation. */
  take(): T | undefined {
    const next = this.#lanes.entries().next().value;
    if (!next) return undefined;
    const [owner, lane] = next;
    this.#lanes.delete(owner);
    const item = lane.shift();
    if (lane.length > 0) this.#lanes.set(owner, lane);
    return item;
  }
}
