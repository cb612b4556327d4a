#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "millstream/core/column.h"

namespace millstream {

/// Copies row indices[k] of `from` to row k of `to` and converts it to the dtype of
/// `to`. If `to` has no `data`, points its rows at the bytes of `from` instead. Throws
/// `DataError` with `field` and the sample if a 64-bit integer does not fit.
void gather(const Column& from, std::span<const std::int64_t> indices, const Column& to,
            const std::string& field);

}  // namespace millstream
