// The input as JSON, where it is wrong, and files as base64 at the cursor.
import { useId, useRef, useState } from 'preact/hooks';
import { sayBytes } from '../../parts/bytes.ts';
import type { Place } from '../../parts/job/json-input.ts';
import { encodeFile } from './files.ts';

interface InputPanelProps {
  text: string;
  problem: string | undefined;
  /** Where the text is wrong, if it is no JSON. */
  place: Place | undefined;
  onInput: (text: string) => void;
}

export function InputPanel({ onInput, place, problem, text }: InputPanelProps) {
  const id = useId();
  const area = useRef<HTMLTextAreaElement>(null);
  const [note, setNote] = useState('');
  const insert = async (file: File | undefined) => {
    if (!file || !area.current) return;
    const encoded = await encodeFile(file);
    if ('problem' in encoded) return setNote(encoded.problem);
    const { selectionEnd, selectionStart, value } = area.current;
    onInput(`${value.slice(0, selectionStart)}"${encoded.base64}"${value.slice(selectionEnd)}`);
    setNote(`Inserted ${file.name}, ${sayBytes(file.size)}.`);
  };
  const goTo = ({ offset }: Place) => {
    area.current?.focus();
    area.current?.setSelectionRange(offset, offset);
  };
  return (
    <div class="input-panel">
      <div class="label-row">
        <label for={id}>Input (JSON)</label>
        <label class="button file">
          Insert a file as base64
          <input
            type="file"
            class="visually-hidden"
            onChange={({ currentTarget }) => {
              void insert(currentTarget.files?.[0]);
              currentTarget.value = '';
            }}
          />
        </label>
      </div>
      <textarea
        ref={area}
        id={id}
        rows={14}
        spellcheck={false}
        autocapitalize="off"
        value={text}
        aria-invalid={problem !== undefined}
        aria-describedby={`${id}-problem`}
        onInput={({ currentTarget }) => onInput(currentTarget.value)}
      />
      <div id={`${id}-problem`} class="input-note" role="status">
        {problem ? <span class="field-problem">{problem}</span> : <span class="muted">{note}</span>}
        {place && (
          <>
            {' '}
            <button type="button" class="quiet" onClick={() => goTo(place)}>
              Line {place.line}, column {place.column}
            </button>
            <WrongLine place={place} />
          </>
        )}
      </div>
    </div>
  );
}

function WrongLine({ place: { text, wrong } }: { place: Place }) {
  if (text.trim() === '') return null;
  return (
    <code class="wrong-line">
      {text.slice(0, wrong)}
      <mark>{text.slice(wrong, wrong + 1) || ' '}</mark>
      {text.slice(wrong + 1)}
    </code>
  );
}
