#include "millstream/source/recast.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "millstream/core/error.h"

namespace millstream {
namespace {

/// Writes a matrix of `rows` by `columns` elements of `bytes` bytes as its transpose.
void transpose(const std::byte* from, std::byte* to, std::int64_t rows,
               std::int64_t columns, std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  for (std::int64_t c = 0; c < columns; ++c) {
    for (std::int64_t r = 0; r < rows; ++r) {
      std::memcpy(to, from + (r * columns + c) * bytes, size);
      to += bytes;
    }
  }
}

}  // namespace

Recast::Recast(SharedSource source, std::vector<RecastField> fields)
    : source_(std::move(source)) {
  if (source_ == nullptr) throw ArgumentError("a source is missing");
  const Schema& stored = source_->schema();
  if (fields.size() != stored.size()) {
    throw ArgumentError(
        text("a source of ", stored.size(), " fields cannot be given ", fields.size()));
  }
  for (std::size_t i = 0; i < fields.size(); ++i) {
    auto& [field, transposed] = fields[i];
    if (field.shape.elements() != stored[i].shape.elements()) {
      throw ArgumentError(text("expected ", str(field), " of as many elements as ",
                               str(stored[i]), ", found ", field.shape.elements(),
                               " and ", stored[i].shape.elements()));
    }
    if (transposed && stored[i].shape.rank() != 2) {
      throw ArgumentError(
          text("expected a matrix to transpose, found ", str(stored[i])));
    }
    for (const Field& other : schema_) {
      if (other.name != field.name) continue;
      throw ArgumentError(text("two fields have the name '", field.name, "'"));
    }
    schema_.push_back(std::move(field));
    transposed_.push_back(transposed);
  }
}

void Recast::read(std::span<const std::int64_t> indices, std::span<Column> columns,
                  Memory& memory) const {
  const auto count = static_cast<std::int64_t>(indices.size());
  const Schema& stored = source_->schema();
  const auto inner = memory.array<Column>(static_cast<std::int64_t>(stored.size()));
  for (std::size_t i = 0; i < stored.size(); ++i) {
    const Column& to = columns[i];
    const bool direct =
        !transposed_[i] && (to.data != nullptr || stored[i].dtype == schema_[i].dtype);
    inner[i] = to;
    inner[i].shape = stored[i].shape;
    if (direct) continue;
    // Values in the dtype that is wanted, to be transposed or pointed at.
    if (to.data == nullptr) inner[i].dtype = schema_[i].dtype;
    inner[i].rows = nullptr;
    inner[i].stride = inner[i].row_bytes();
    inner[i].data = memory.allocate(count * inner[i].stride);
  }
  source_->read(indices, inner, memory);
  for (std::size_t i = 0; i < stored.size(); ++i) {
    const Column& to = columns[i];
    const Column& from = inner[i];
    if (from.data == nullptr || from.data == to.data) continue;
    const bool views = to.data == nullptr;
    Column values = from;
    if (transposed_[i]) {
      values = views ? from : to;
      if (views) values.data = memory.allocate(count * from.stride);
      for (std::int64_t k = 0; k < count; ++k) {
        transpose(from.row(k), values.row(k), stored[i].shape[0], stored[i].shape[1],
                  byte_size(from.dtype));
      }
    }
    if (!views) continue;
    for (std::int64_t k = 0; k < count; ++k) to.rows[k] = values.row(k);
  }
}

}  // namespace millstream
