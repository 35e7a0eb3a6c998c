import { ValidationError } from "./errors.js";

/** An attachment of a received message. */
export interface Attachment {
  id: string;
  data: Uint8Array;
  mimeType: string;
  name?: string;
  /** In bytes; set on received attachments. */
  size?: number;
}

/** An attachment to send with a message. Without an id, the server assigns one. */
export interface AttachmentInput {
  id?: string;
  data: Uint8Array | ArrayBuffer;
  mimeType: string;
  name?: string;
}

export interface AttachmentMeta {
  id?: string | undefined;
  mimeType: string;
  name?: string | undefined;
  size: number;
}

/** The first byte of a frame with attachments. */
const BINARY = 0x00;
const HEAD = 5;

/** Encodes one zero byte, the length of the JSON in 32 bits, the JSON, and the bytes of all attachments. */
export function encodeBinary(json: string, attachments: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const text = new TextEncoder().encode(json);
  const total = attachments.reduce((sum, bytes) => sum + bytes.byteLength, HEAD + text.byteLength);
  const frame = new Uint8Array(total);
  frame[0] = BINARY;
  new DataView(frame.buffer).setUint32(1, text.byteLength, true);
  frame.set(text, HEAD);
  let at = HEAD + text.byteLength;
  for (const bytes of attachments) {
    frame.set(bytes, at);
    at += bytes.byteLength;
  }
  return frame;
}

/** Returns the JSON of a binary frame, and the bytes after it. */
export function decodeBinary(frame: Uint8Array): { json: string; rest: Uint8Array } {
  if (frame.byteLength < HEAD || frame[0] !== BINARY) {
    throw new ValidationError("a binary frame must start with a zero byte and a length", "receive");
  }
  const length = new DataView(frame.buffer, frame.byteOffset, frame.byteLength).getUint32(1, true);
  if (length > frame.byteLength - HEAD) {
    throw new ValidationError(`a binary frame is shorter than the announced ${length} bytes of JSON`, "receive");
  }
  try {
    const json = new TextDecoder("utf-8", { fatal: true }).decode(frame.subarray(HEAD, HEAD + length));
    return { json, rest: frame.subarray(HEAD + length) };
  } catch (error) {
    throw new ValidationError("the JSON of a binary frame is not valid UTF-8", "receive", error);
  }
}

/** Splits the bytes of a frame into its attachments. */
export function cut(described: readonly AttachmentMeta[], bytes: Uint8Array): Attachment[] {
  const total = described.reduce((sum, meta) => sum + meta.size, 0);
  if (total !== bytes.byteLength) {
    throw new ValidationError(
      `attachments of ${total} bytes are announced, but ${bytes.byteLength} bytes were received`,
      "receive",
      described,
    );
  }
  let at = 0;
  return described.map((meta, index) => {
    // A copy. A view would keep the whole frame in memory for one attachment.
    const data = bytes.slice(at, at + meta.size);
    at += meta.size;
    const { mimeType, size } = meta;
    return {
      id: meta.id ?? `attachment_${index + 1}`,
      data,
      mimeType,
      size,
      ...(meta.name ? { name: meta.name } : {}),
    };
  });
}

/** Returns the metadata of attachments for a frame, and their bytes. */
export function describe(attachments: readonly AttachmentInput[]): { meta: AttachmentMeta[]; bytes: Uint8Array[] } {
  const bytes = attachments.map(({ data, mimeType }, index) => {
    const isBytes = data instanceof Uint8Array || data instanceof ArrayBuffer;
    if (!isBytes || typeof mimeType !== "string" || mimeType === "") {
      throw new ValidationError(`attachment ${index + 1} must have bytes as its data, and a mimeType`, "send", {
        mimeType,
      });
    }
    return data instanceof Uint8Array ? data : new Uint8Array(data);
  });
  const meta = attachments.map(({ id, mimeType, name }, index) => ({
    mimeType,
    size: (bytes[index] as Uint8Array).byteLength,
    ...(id === undefined ? {} : { id }),
    ...(name === undefined ? {} : { name }),
  }));
  return { meta, bytes };
}
