#include "millstream/transform/random_flip.h"

#include <cstring>
#include <utility>

#include "millstream/core/error.h"

namespace millstream {
namespace {

/// A value seen as `blocks` blocks of `count` elements of `bytes` bytes each. A flip
/// reverses the elements of each block.
struct Blocks {
  std::int64_t blocks = 1;
  std::int64_t count = 1;
  std::int64_t bytes = 1;
};

Blocks blocks_of(const Column& column, int axis) {
  Blocks result = {1, column.shape[axis], byte_size(column.dtype)};
  for (int i = 0; i < axis; ++i) result.blocks *= column.shape[i];
  for (int i = axis + 1; i < column.shape.rank(); ++i) result.bytes *= column.shape[i];
  return result;
}

/// With `kBytes`, the size of an element is known to the compiler, which then copies
/// without a call of memcpy.
template <std::int64_t kBytes = 0>
void flip(const std::byte* from, std::byte* to, const Blocks& sizes) {
  const std::int64_t bytes = kBytes == 0 ? sizes.bytes : kBytes;
  for (std::int64_t block = 0; block < sizes.blocks; ++block) {
    const std::byte* end = from + (block + 1) * sizes.count * bytes;
    std::byte* begin = to + block * sizes.count * bytes;
    for (std::int64_t i = 0; i < sizes.count; ++i) {
      std::memcpy(begin + i * bytes, end - (i + 1) * bytes,
                  static_cast<std::size_t>(bytes));
    }
  }
}

using Flip = void (*)(const std::byte* from, std::byte* to, const Blocks& sizes);

/// The flip for elements of this size: pixels with one, three or four channels.
Flip flip_for(std::int64_t bytes) {
  switch (bytes) {
    case 1: return flip<1>;
    case 2: return flip<2>;
    case 3: return flip<3>;
    case 4: return flip<4>;
    case 6: return flip<6>;
    case 8: return flip<8>;
    case 12: return flip<12>;
    case 16: return flip<16>;
    default: return flip<>;
  }
}

}  // namespace

RandomFlip::RandomFlip(std::vector<std::string> fields, int axis, double probability)
    : fields_(std::move(fields)), axis_(axis), probability_(probability) {
  if (fields_.empty()) throw ArgumentError("random_flip: there are no fields to flip");
  if (!(probability >= 0 && probability <= 1)) {
    throw ArgumentError(
        text(str(), ": the probability must be from 0 to 1, not ", probability));
  }
}

std::string RandomFlip::str() const { return named("random_flip", fields_); }

Flow RandomFlip::flow(const Schema& input) const {
  Flow flow = passing(input);
  const Field* first = nullptr;
  for (const std::string& name : fields_) {
    const auto i = static_cast<std::size_t>(field_named(input, name, str()));
    const int rank = input[i].shape.rank();
    const int axis = axis_of(rank);
    if (axis < 0 || axis >= rank) {
      throw ArgumentError(text(str(), ": axis ", axis_, " is out of range for ",
                               millstream::str(input[i]), ", which has ", rank,
                               " axes"));
    }
    if (first == nullptr) first = &input[i];
    const int wanted = axis_of(first->shape.rank());
    if (axis != wanted) {
      throw ArgumentError(text(str(), ": axis ", axis_, " is axis ", wanted, " of ",
                               millstream::str(*first), ", but axis ", axis, " of ",
                               millstream::str(input[i]), ". Use axis=", wanted,
                               " or axis=", axis));
    }
    flow.from[i] = Flow::kMade;
  }
  return flow;
}

void RandomFlip::apply(const Flow& flow, const Request& request, const Rows& in,
                       Rows& out) const {
  const std::int64_t rows = request.rows();
  const auto flips = out.memory.array<bool>(rows);
  for (std::int64_t k = 0; k < rows; ++k) {
    flips[static_cast<std::size_t>(k)] =
        static_cast<double>(request.random(k).uniform()) < probability_;
  }
  for (std::size_t i = 0; i < out.columns.size(); ++i) {
    if (flow.from[i] != Flow::kMade) continue;
    const Column& from = in.columns[i];
    const Column& to = out.columns[i];
    const Blocks sizes = blocks_of(from, axis_of(from.shape.rank()));
    const Flip flip = flip_for(sizes.bytes);
    for (std::int64_t k = 0; k < rows; ++k) {
      if (from.rows != nullptr && k + kPrefetchRows < rows) {
        prefetch(from.row(k + kPrefetchRows), from.row_bytes());
      }
      if (flips[static_cast<std::size_t>(k)]) {
        flip(from.row(k), to.row(k), sizes);
      } else {
        std::memcpy(to.row(k), from.row(k), static_cast<std::size_t>(from.row_bytes()));
      }
    }
  }
}

}  // namespace millstream
