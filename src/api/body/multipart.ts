// Reads a form (multipart/form-data, RFC 7578) part by part, without keeping a file.
import { ProblemError } from '../../wire/problem.ts';

const MAX_HEAD_BYTES = 16_384;
const MAX_FIELD_BYTES = 65_536;
const MAX_PARTS = 64;

export interface FormPart {
  name: string;
  /** Undefined: the part is a field. */
  fileName: string | undefined;
  /** Read it to its end before the next part. */
  content: AsyncGenerator<Buffer>;
}

/** Undefined if the type is another one, or has no boundary. */
export function findBoundary(contentType: string | undefined): string | undefined {
  const [, quoted, plain] =
    /^multipart\/form-data\b.*;\s*boundary=(?:"([^"]{1,70})"|([^\s;,"]{1,70}))(?=\s*(?:;|$))/i.exec(
      contentType ?? '',
    ) ?? [];
  return quoted ?? plain;
}

/** @throws ProblemError `malformed` */
export async function* readForm(
  source: AsyncIterator<Buffer>,
  boundary: string,
): AsyncGenerator<FormPart> {
  const reader = new FormReader(source, boundary);
  await reader.skipTo();
  for (let parts = 0; !(await reader.isEnd()); parts++) {
    if (parts >= MAX_PARTS) throw refuse(`has more than ${MAX_PARTS} parts`);
    yield { ...readDisposition(await reader.head()), content: reader.content() };
  }
}

/** @throws ProblemError `malformed` */
export async function readField({ content, name }: FormPart): Promise<string> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of content) {
    bytes += piece.length;
    if (bytes > MAX_FIELD_BYTES) {
      throw refuse(`has more than ${MAX_FIELD_BYTES} bytes in the field ${name.slice(0, 100)}`);
    }
    pieces.push(Buffer.from(piece));
  }
  return Buffer.concat(pieces).toString('utf8');
}

function readDisposition(head: string): Pick<FormPart, 'fileName' | 'name'> {
  const [, disposition] = /^content-disposition:\s*form-data\s*(;.*)$/im.exec(head) ?? [];
  const read = (parameter: string) => {
    const found = new RegExp(`;\\s*${parameter}="((?:[^"\\\\]|\\\\.)*)"`, 'i').exec(
      disposition ?? '',
    );
    return found?.[1]?.replace(/%22|\\"/g, '"');
  };
  const name = read('name');
  if (name === undefined) throw refuse('has a part without a name');
  return { name, fileName: read('filename') };
}

const LINE_END = Buffer.from('\r\n');
const HEAD_END = Buffer.from('\r\n\r\n');
const NO_BYTES = Buffer.alloc(0);

class FormReader {
  readonly #source: AsyncIterator<Buffer>;
  readonly #delimiter: Buffer;
  /** Bytes that have arrived and are not read yet. The first delimiter has no line end before it. */
  #pending: Buffer = LINE_END;

  constructor(source: AsyncIterator<Buffer>, boundary: string) {
    this.#source = source;
    this.#delimiter = Buffer.from(`\r\n--${boundary}`, 'latin1');
  }

  /** To the first part. */
  async skipTo(): Promise<void> {
    let skipped = 0;
    for await (const piece of this.content()) {
      skipped += piece.length;
      if (skipped > MAX_HEAD_BYTES) throw refuse('does not begin with its boundary');
    }
  }

  /** Whether the delimiter that was read was the last one. */
  async isEnd(): Promise<boolean> {
    while (this.#pending.length < 2) await this.#more();
    const mark = this.#pending.subarray(0, 2);
    if (mark.equals(LINE_END)) return false;
    if (mark.toString('latin1') !== '--') throw refuse('has bytes behind a boundary');
    await this.#discardRest();
    return true;
  }

  /** Headers of a part. */
  async head(): Promise<string> {
    for (;;) {
      const end = this.#pending.indexOf(HEAD_END);
      if (end > MAX_HEAD_BYTES || (end < 0 && this.#pending.length > MAX_HEAD_BYTES)) {
        throw refuse(`has a part with more than ${MAX_HEAD_BYTES} bytes of headers`);
      }
      if (end >= 0) {
        const head = this.#pending.toString('utf8', 2, end);
        this.#pending = this.#pending.subarray(end + HEAD_END.length);
        return head;
      }
      await this.#more();
    }
  }

  async *content(): AsyncGenerator<Buffer> {
    const delimiter = this.#delimiter;
    for (;;) {
      const at = this.#pending.indexOf(delimiter);
      const end = at >= 0 ? at : this.#pending.length - delimiter.length + 1;
      if (end > 0) {
        const piece = this.#pending.subarray(0, end);
        this.#pending = this.#pending.subarray(end);
        yield piece;
      }
      if (at >= 0) {
        this.#pending = this.#pending.subarray(delimiter.length);
        return;
      }
      await this.#more();
    }
  }

  async #more(): Promise<void> {
    const { done, value } = await this.#source.next();
    if (done) throw refuse('ends before its last boundary');
    this.#pending = this.#pending.length > 0 ? Buffer.concat([this.#pending, value]) : value;
  }

  async #discardRest(): Promise<void> {
    this.#pending = NO_BYTES;
    let rest = 0;
    for (;;) {
      const { done, value } = await this.#source.next();
      if (done) return;
      rest += value.length;
      if (rest > MAX_HEAD_BYTES) throw refuse('has bytes behind its last boundary');
    }
  }
}

function refuse(fault: string): ProblemError {
  return new ProblemError('malformed', `The form ${fault}.`);
}
