/** The shape is the plugin author's: without a type argument, anything goes. */
// biome-ignore lint/suspicious/noExplicitAny: `unknown` would make every use of an untyped answer an error.
export type Anything = any;
