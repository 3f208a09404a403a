// The same call as a program, to copy.
import { useState } from 'preact/hooks';
import { Block } from '../../parts/block.tsx';
import { Copy } from '../../parts/copy.tsx';
import { sessionState } from '../../platform/session.ts';
import { LANGUAGES, type Language, writeSnippet } from './snippets.ts';
import type { Mode } from './tries.ts';

interface SnippetPanelProps {
  endpoint: string;
  mode: Mode;
  /** JSON text. */
  input: string;
}

export function SnippetPanel({ endpoint, input, mode }: SnippetPanelProps) {
  const [language, setLanguage] = useState<Language>('curl');
  const state = sessionState.read();
  const needsKey = !(state.kind === 'open' && state.session.key === null);
  const text = writeSnippet(language, { origin: location.origin, endpoint, input, mode, needsKey });
  return (
    <details>
      <summary>Copy as code</summary>
      <div class="choice" role="radiogroup" aria-label="Language">
        {LANGUAGES.map((each) => (
          <label key={each}>
            <input
              type="radio"
              name="language"
              checked={each === language}
              onChange={() => setLanguage(each)}
            />
            {each}
          </label>
        ))}
      </div>
      <Block text={text} label={language} />
      <Copy text={text} />
    </details>
  );
}
