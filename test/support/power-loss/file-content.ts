// What a file on disk may hold after a power cut: its content at the last fsync, and of the changes since then some.

const SECTOR_BYTES = 512;

type FileChange = { at: number; bytes: Buffer } | { size: number };

/** Of the changes that are not on disk: none, all, the first ones, or some in each sector. */
type Survival = 'none' | 'all' | 'first' | 'torn';

export class FileContent {
  #bytes: Buffer;
  #size: number;
  #pending: FileChange[] = [];

  constructor(bytes: Buffer = Buffer.alloc(0)) {
    this.#bytes = bytes;
    this.#size = bytes.length;
  }

  get bytes(): Buffer {
    return this.#bytes.subarray(0, this.#size);
  }

  /** Whether all changes are on disk. */
  get isSynced(): boolean {
    return this.#pending.length === 0;
  }

  /** Of the content that is on disk. */
  copy(): FileContent {
    return new FileContent(Buffer.from(this.bytes));
  }

  change(change: FileChange): void {
    this.#pending.push(change);
  }

  sync(): void {
    for (const change of this.#pending.splice(0)) this.#apply(change);
  }

  /** The power fails. */
  cut(random: () => number): void {
    const choices: Survival[] = ['none', 'all', 'first', 'torn', 'torn'];
    const survival = choices[Math.floor(random() * choices.length)];
    if (survival === 'torn') this.#tear(random);
    else {
      const share = { none: 0, all: 1, first: random() }[survival ?? 'none'];
      this.#pending.length = Math.round(this.#pending.length * share);
      this.sync();
    }
  }

  /**
   * Each sector has the content that it had at a random time since the last fsync. A file system puts changes of a
   * file's size by `ftruncate` on disk in their order, and never shows a later write without them.
   */
  #tear(random: () => number): void {
    const changes = this.#pending.splice(0);
    const resizes = changes.flatMap((change, index) => ('size' in change ? [index] : []));
    const kept = Math.floor(random() * (resizes.length + 1));
    const visible = changes.slice(0, resizes[kept]);
    const lastResize = kept === 0 ? -1 : (resizes[kept - 1] ?? -1);

    const writes = new Map<number, number>();
    for (const piece of visible.flatMap(splitIntoSectors))
      writes.set(piece.sector, (writes.get(piece.sector) ?? 0) + 1);
    const left = new Map<number, number>();
    for (const [sector, count] of writes) left.set(sector, Math.floor(random() * (count + 1)));

    const sizes: number[] = [];
    for (const [index, change] of visible.entries()) {
      if ('size' in change) this.#apply(change);
      if (index === lastResize) sizes.length = 0;
      for (const piece of splitIntoSectors(change)) {
        const size = piece.at + piece.bytes.length;
        if (size > Math.max(this.#size, ...sizes.slice(-1))) sizes.push(size);
        const count = left.get(piece.sector) ?? 0;
        left.set(piece.sector, count - 1);
        if (count > 0) this.#place(piece);
      }
    }
    const size = [this.#size, ...sizes][Math.floor(random() * (sizes.length + 1))] ?? this.#size;
    this.#reserve(size);
    this.#size = size;
  }

  #apply(change: FileChange): void {
    if ('size' in change) {
      this.#reserve(change.size);
      // What grows later begins with zeros.
      this.#bytes.fill(0, Math.min(change.size, this.#size));
      this.#size = change.size;
    } else {
      this.#place(change);
      this.#size = Math.max(this.#size, change.at + change.bytes.length);
    }
  }

  /** Leaves the size as it is. */
  #place({ at, bytes }: { at: number; bytes: Buffer }): void {
    this.#reserve(at + bytes.length);
    bytes.copy(this.#bytes, at);
  }

  #reserve(size: number): void {
    if (size <= this.#bytes.length) return;
    const larger = Buffer.alloc(2 * size);
    this.#bytes.copy(larger);
    this.#bytes = larger;
  }
}

function splitIntoSectors(change: FileChange): { sector: number; at: number; bytes: Buffer }[] {
  if ('size' in change) return [];
  const pieces = [];
  for (let done = 0; done < change.bytes.length; ) {
    const at = change.at + done;
    const sector = Math.floor(at / SECTOR_BYTES);
    const length = Math.min((sector + 1) * SECTOR_BYTES - at, change.bytes.length - done);
    pieces.push({ sector, at, bytes: change.bytes.subarray(done, done + length) });
    done += length;
  }
  return pieces;
}
