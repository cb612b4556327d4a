#pragma once

#include "xla/ffi/api/c_api.h"

namespace millstream {

/// Delivers the batch of a state inside jit.
///
/// Operand: states, uint32[..., 8]. Results: the fields of the batch, the mask, and the
/// next states. Attributes: "plan", the number of the registered loader, and "digest",
/// the digest of its plan.
XLA_FFI_Error* batch_in_jit(XLA_FFI_CallFrame* frame);

/// Like `batch_in_jit`, for sources that block. If the batch is not ready, XLA gets a
/// future. A delivery thread fulfils it; XLA's own threads and workers never do.
XLA_FFI_Error* batch_in_jit_later(XLA_FFI_CallFrame* frame);

/// Lists the samples of a batch, for programs that gather them on the device.
///
/// Operand and attributes are those of `batch_in_jit`. Results: the sample indices,
/// uint32[..., rows], 0 in padding; the mask; and the next states. If there are four
/// results, the second is the epoch of each row, uint32[..., rows].
XLA_FFI_Error* indices_in_jit(XLA_FFI_CallFrame* frame);

/// Delivers one shard of the batch of a state, inside a program that runs on several
/// devices. The results determine the number of rows.
///
/// Operands: states, uint32[..., 8], and the number of the shard, uint32[...], the same
/// for all states. Results are those of `batch_in_jit`. Attributes are the same and
/// "rows", the number of rows of a shard.
XLA_FFI_Error* shard_in_jit(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* shard_in_jit_later(XLA_FFI_CallFrame* frame);

/// Delivers the batch of a state, or several batches from it on, to a Python loop.
///
/// Operands: the state, uint32[8], and the number of the loader, uint32[2] (low, high).
/// Loaders with equal schemas therefore share one compiled program. Results: the fields
/// and the mask of each batch, then the state after the last batch. Batches after the
/// first count as delivered only when `Loader::hand_out` is called.
XLA_FFI_Error* batches_on_host(XLA_FFI_CallFrame* frame);

}  // namespace millstream
