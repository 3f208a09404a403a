// Splits a command line into words as a POSIX shell does: quotes and backslashes apply, nothing is
// expanded.

/** Characters that a backslash escapes between double quotes. */
const ESCAPABLE_IN_QUOTES = '"\\$`';

/** Thrown for an invalid command line. The message calls it `args`, the name of the field. */
export class ShellWordsError extends Error {
  override readonly name = 'ShellWordsError';
}

/** @throws ShellWordsError if a quote is not closed or a backslash ends the text */
export function splitWords(text: string): string[] {
  const words: string[] = [];
  // Undefined between words, because empty quotes are a word too.
  let word: string | undefined;
  let at = 0;
  const end = () => {
    if (word !== undefined) words.push(word);
    word = undefined;
  };
  while (at < text.length) {
    const char = text.charAt(at);
    if (isBlank(char)) {
      end();
      at++;
      continue;
    }
    const piece = readPiece(text, at);
    at = piece.next;
    if (piece.text !== undefined) word = (word ?? '') + piece.text;
  }
  end();
  return words;
}

interface WordPiece {
  /** Undefined if the escape adds nothing to the word, as an escaped line feed. */
  text: string | undefined;
  /** Position after the escape. */
  next: number;
}

function readPiece(text: string, at: number): WordPiece {
  switch (text.charAt(at)) {
    case "'":
      return readSingleQuoted(text, at);
    case '"':
      return readDoubleQuoted(text, at);
    case '\\':
      return readEscaped(text, at);
    default:
      return { text: text.charAt(at), next: at + 1 };
  }
}

function readEscaped(text: string, at: number): WordPiece {
  if (at + 1 === text.length) throw new ShellWordsError('args end with a backslash');
  const char = text.charAt(at + 1);
  return { text: char === '\n' ? undefined : char, next: at + 2 };
}

function readSingleQuoted(text: string, at: number): WordPiece {
  const close = text.indexOf("'", at + 1);
  if (close === -1) throw openQuote("'", at);
  return { text: text.slice(at + 1, close), next: close + 1 };
}

function readDoubleQuoted(text: string, at: number): WordPiece {
  let read = '';
  for (let next = at + 1; next < text.length; next++) {
    const char = text.charAt(next);
    if (char === '"') return { text: read, next: next + 1 };
    const after = text.charAt(next + 1);
    if (char !== '\\' || next + 1 === text.length) {
      read += char;
    } else {
      next++;
      if (ESCAPABLE_IN_QUOTES.includes(after)) read += after;
      else if (after !== '\n') read += char + after;
    }
  }
  throw openQuote('"', at);
}

function openQuote(quote: string, at: number): ShellWordsError {
  return new ShellWordsError(`args have a ${quote} at position ${at} that is not closed`);
}

function isBlank(char: string): boolean {
  return char === ' ' || char === '\t' || char === '\n';
}

/** Returns a word that a shell, or `splitWords`, reads as this text. */
export function quoteWord(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
