// The input as JSON, and files as base64 at the cursor.
import { useId, useRef, useState } from 'preact/hooks';
import { sayBytes } from '../../parts/bytes.ts';
import { encodeFile } from './files.ts';

interface InputPanelProps {
  text: string;
  problem: string | undefined;
  onInput: (text: string) => void;
}

export function InputPanel({ onInput, problem, text }: InputPanelProps) {
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
      <p id={`${id}-problem`} class={problem ? 'field-problem' : 'muted'} role="status">
        {problem ?? note}
      </p>
    </div>
  );
}
