// Writes a value as indented JSON of a bounded length: long texts and lists are cut, so that a page stays usable with
// an output of 20 MB.
import { type Media, readMedia } from './media.ts';

export interface Outline {
  text: string;
  /** Some of the value is not in the text. */
  isCut: boolean;
  /** The first ones, in the order of the value. */
  media: Media[];
}

export const BOUNDS = {
  /** Characters of one string. */
  stringCharacters: 4_000,
  /** Elements of one list, and members of one object. */
  members: 200,
  /** Characters of the whole text. */
  characters: 100_000,
  depth: 60,
  media: 24,
};

export function outline(value: unknown): Outline {
  const writer = new Writer();
  writer.write(value, '', 0);
  return writer.finish();
}

class Writer {
  readonly #parts: string[] = [];
  readonly #media: Media[] = [];
  #length = 0;
  #isCut = false;

  finish(): Outline {
    return { text: this.#parts.join(''), isCut: this.#isCut, media: this.#media };
  }

  write(value: unknown, path: string, depth: number): void {
    if (typeof value === 'string') this.#add(this.#quote(value, path));
    else if (typeof value !== 'object' || value === null)
      this.#add(JSON.stringify(value) ?? 'null');
    else if (Array.isArray(value)) this.#writeList(value, path, depth);
    else this.#writeObject(value, path, depth);
  }

  #writeList(list: readonly unknown[], path: string, depth: number): void {
    const members = list.slice(0, BOUNDS.members);
    this.#writeMembers('[]', { depth, size: list.length, shown: members.length }, (index) => {
      this.write(members[index], `${path}[${index}]`, depth + 1);
    });
  }

  #writeObject(value: object, path: string, depth: number): void {
    const names = Object.keys(value);
    const shown = Math.min(names.length, BOUNDS.members);
    this.#writeMembers('{}', { depth, size: names.length, shown }, (index) => {
      const name = names[index] ?? '';
      this.#add(`${JSON.stringify(name)}: `);
      this.write(Reflect.get(value, name), path ? `${path}.${name}` : name, depth + 1);
    });
  }

  #writeMembers(
    brackets: '[]' | '{}',
    { depth, shown, size }: { depth: number; size: number; shown: number },
    write: (index: number) => void,
  ): void {
    const [open, close] = brackets;
    const isDeep = depth >= BOUNDS.depth;
    this.#isCut ||= isDeep && size > 0;
    if (size === 0 || isDeep) {
      this.#add(size === 0 ? brackets : `${open} … ${close}`);
      return;
    }
    const indent = '  '.repeat(depth + 1);
    this.#add(`${open}\n`);
    for (let index = 0; index < shown && !this.#isFull(); index++) {
      this.#add(indent);
      write(index);
      this.#add(index + 1 < size ? ',\n' : '\n');
    }
    if (size > shown) {
      this.#isCut = true;
      this.#add(`${indent}… ${(size - shown).toLocaleString()} more\n`);
    }
    this.#add(`${'  '.repeat(depth)}${close}`);
  }

  #isFull(): boolean {
    return this.#length > BOUNDS.characters;
  }

  #add(text: string): void {
    this.#isCut ||= this.#isFull();
    if (this.#isFull()) return;
    this.#parts.push(text);
    this.#length += text.length;
  }

  #quote(text: string, path: string): string {
    const size = `${text.length.toLocaleString()} characters`;
    const media = this.#media.length < BOUNDS.media ? readMedia(text, path) : undefined;
    if (media) {
      this.#media.push(media);
      this.#isCut = true;
      return `"${text.slice(0, 40)}…" (${media.kind}, ${size})`;
    }
    if (text.length <= BOUNDS.stringCharacters) return JSON.stringify(text);
    this.#isCut = true;
    return `${JSON.stringify(text.slice(0, BOUNDS.stringCharacters)).slice(0, -1)}…" (${size})`;
  }
}
