// The input as JSON, and files as base64 at the cursor.
import { useId, useRef, useState } from 'preact/hooks';
import { sayBytes } from '../../parts/bytes.ts';

interface InputPanelProps {
  text: string;
  problem: string | undefined;
  onInput: (text: string) => void;
  onRun: () => void;
}

/** base64 of a larger file does not fit into a request of 10 MB. */
const MAX_FILE_BYTES = 7_500_000;

export function InputPanel({ onInput, onRun, problem, text }: InputPanelProps) {
  const id = useId();
  const area = useRef<HTMLTextAreaElement>(null);
  const [note, setNote] = useState('');
  const insert = async (file: File | undefined) => {
    if (!file || !area.current) return;
    if (file.size > MAX_FILE_BYTES) {
      return setNote(
        `${file.name} has ${sayBytes(file.size)}; as base64 at most ${sayBytes(MAX_FILE_BYTES)} fit into a job. Pass a URL instead.`,
      );
    }
    const base64 = encodeBase64(new Uint8Array(await file.arrayBuffer()));
    const { selectionEnd, selectionStart, value } = area.current;
    onInput(`${value.slice(0, selectionStart)}"${base64}"${value.slice(selectionEnd)}`);
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
        onKeyDown={(event) => {
          if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey)) return;
          event.preventDefault();
          onRun();
        }}
      />
      <p id={`${id}-problem`} class={problem ? 'field-problem' : 'muted'} role="status">
        {problem ?? note}
      </p>
    </div>
  );
}

const SLICE = 32_768;

function encodeBase64(bytes: Uint8Array): string {
  let text = '';
  for (let start = 0; start < bytes.length; start += SLICE) {
    text += String.fromCharCode(...bytes.subarray(start, start + SLICE));
  }
  return btoa(text);
}
