// Reads a stream of bytes in pieces of given sizes.

export class ByteReader {
  readonly #source: AsyncIterator<Uint8Array>;
  #rest: Buffer = Buffer.alloc(0);

  constructor(source: AsyncIterable<Uint8Array>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  /** Resolves with `size` bytes, or with fewer if the stream ends. */
  async read(size: number): Promise<Buffer> {
    const parts: Buffer[] = [];
    for await (const part of this.take(size)) parts.push(part);
    const [only] = parts;
    return parts.length === 1 && only ? only : Buffer.concat(parts);
  }

  /** Yields `size` bytes in parts as they come, or fewer if the stream ends. */
  async *take(size: number): AsyncGenerator<Buffer, void, undefined> {
    let missing = size;
    while (missing > 0 && (await this.#fill())) {
      const part = this.#rest.subarray(0, missing);
      this.#rest = this.#rest.subarray(part.length);
      missing -= part.length;
      yield part;
    }
  }

  /** Ends the source, whose rest nobody reads. */
  async close(): Promise<void> {
    await this.#source.return?.();
  }

  async #fill(): Promise<boolean> {
    while (this.#rest.length === 0) {
      const next = await this.#source.next();
      if (next.done) return false;
      const { buffer, byteLength, byteOffset } = next.value;
      this.#rest = Buffer.from(buffer, byteOffset, byteLength);
    }
    return true;
  }
}
