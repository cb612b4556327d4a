#include "millstream/source/recast.h"

#include <cstring>
#include <utility>

#include "millstream/core/convert.h"
#include "millstream/core/error.h"

namespace millstream {
namespace {

/// Transposes a matrix of `rows` by `columns` elements of `bytes` bytes.
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
    : Wrapping(std::move(source)), traits_(source_->traits()) {
  const Schema& stored = source_->schema();
  if (fields.size() != stored.size()) {
    throw ArgumentError(text("a source of ", stored.size(),
                             " fields needs as many new fields, not ", fields.size()));
  }
  std::vector<bool> taken(stored.size());
  for (RecastField& made : fields) {
    const auto from = static_cast<std::size_t>(made.from);
    if (from >= stored.size() || taken[from]) {
      throw ArgumentError(text("'", made.field.name, "' uses field ", made.from, " of ",
                               stored.size(),
                               " fields; each field must be used exactly once"));
    }
    taken[from] = true;
    if (made.field.shape.elements() != stored[from].shape.elements()) {
      throw ArgumentError(text("expected ", str(made.field), " of as many elements as ",
                               str(stored[from]), ", found ",
                               made.field.shape.elements(), " and ",
                               stored[from].shape.elements()));
    }
    if (made.transposed && stored[from].shape.rank() != 2) {
      throw ArgumentError(
          text("expected a matrix to transpose, found ", str(stored[from])));
    }
    for (const Field& other : schema_) {
      if (other.name != made.field.name) continue;
      throw ArgumentError(text("two fields have the name '", made.field.name, "'"));
    }
    const DType dtype = made.field.dtype;
    traits_.may_fail |= is_checked(stored[from].dtype, dtype);
    schema_.push_back(std::move(made.field));
    from_.push_back(from);
    transposed_.push_back(made.transposed);
  }
}

std::vector<RecastField> Recast::fields() const {
  std::vector<RecastField> fields;
  for (std::size_t i = 0; i < schema_.size(); ++i) {
    fields.push_back({schema_[i], static_cast<int>(from_[i]), transposed_[i]});
  }
  return fields;
}

void Recast::read(const Request& request, Rows& rows) const {
  const auto& [columns, memory] = rows;
  const std::int64_t count = request.rows();
  const Schema& stored = source_->schema();
  const auto inner = memory.array<Column>(static_cast<std::int64_t>(stored.size()));
  for (std::size_t i = 0; i < schema_.size(); ++i) {
    const Column& to = columns[i];
    const Field& field = stored[from_[i]];
    Column& from = inner[from_[i]];
    from = to;
    from.shape = field.shape;
    const bool same_dtype = field.dtype == schema_[i].dtype;
    if (!transposed_[i] && (to.data != nullptr || same_dtype)) continue;
    // A buffer for values of the new dtype, which are then transposed or pointed at.
    if (to.data == nullptr) from.dtype = schema_[i].dtype;
    from.rows = nullptr;
    from.stride = from.row_bytes();
    from.data = memory.allocate(count * from.stride);
  }
  Rows stored_rows{inner, memory};
  source_->read(request, stored_rows);
  for (std::size_t i = 0; i < schema_.size(); ++i) {
    const Column& to = columns[i];
    const Column& from = inner[from_[i]];
    if (from.data == nullptr || from.data == to.data) continue;
    const bool views = to.data == nullptr;
    Column values = from;
    if (transposed_[i]) {
      values = views ? from : to;
      if (views) values.data = memory.allocate(count * from.stride);
      const Shape& shape = stored[from_[i]].shape;
      for (std::int64_t k = 0; k < count; ++k) {
        transpose(from.row(k), values.row(k), shape[0], shape[1],
                  byte_size(from.dtype));
      }
    }
    if (!views) continue;
    for (std::int64_t k = 0; k < count; ++k) to.rows[k] = values.row(k);
  }
}

}  // namespace millstream
