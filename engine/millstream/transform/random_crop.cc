#include "millstream/transform/random_crop.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "millstream/core/error.h"

namespace millstream {
namespace {

/// The largest size and padding. Larger numbers could overflow.
constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();

std::string by(std::int64_t height, std::int64_t width) {
  return text(height, " x ", width);
}

/// Copies elements [first, first + width) of a line of `length` elements. Elements
/// outside the line are zero.
void copy_line(const std::byte* from, std::int64_t length, std::byte* to,
               std::int64_t first, std::int64_t width, std::int64_t bytes) {
  const auto size = [bytes](std::int64_t count) {
    return static_cast<std::size_t>(count * bytes);
  };
  const std::int64_t begin = std::clamp<std::int64_t>(-first, 0, width);
  const std::int64_t end = std::clamp<std::int64_t>(length - first, begin, width);
  std::memset(to, 0, size(begin));
  if (begin < end) {
    std::memcpy(to + begin * bytes, from + (first + begin) * bytes, size(end - begin));
  }
  std::memset(to + end * bytes, 0, size(width - end));
}

}  // namespace

RandomCrop::RandomCrop(std::vector<std::string> fields, HeightWidth size,
                       HeightWidth padding)
    : fields_(std::move(fields)), size_(size), padding_(padding) {
  if (fields_.empty()) throw ArgumentError("random_crop: there are no fields to crop");
  for (const std::int64_t extent : {size.height, size.width}) {
    if (extent >= 1 && extent <= kMost) continue;
    throw ArgumentError(
        text(str(), ": the size must be from 1 to ", kMost, ", not ", extent));
  }
  for (const std::int64_t zeros : {padding.height, padding.width}) {
    if (zeros >= 0 && zeros <= kMost) continue;
    throw ArgumentError(
        text(str(), ": the padding must be from 0 to ", kMost, ", not ", zeros));
  }
}

std::string RandomCrop::str() const { return named("random_crop", fields_); }

HeightWidth RandomCrop::choices(const Shape& image) const noexcept {
  return {image[0] + 2 * padding_.height - size_.height + 1,
          image[1] + 2 * padding_.width - size_.width + 1};
}

Flow RandomCrop::flow(const Schema& input) const {
  Flow flow = passing(input);
  const Field* first = nullptr;
  for (const std::string& name : fields_) {
    const auto i = static_cast<std::size_t>(field_named(input, name, str()));
    const Shape& shape = input[i].shape;
    if (shape.rank() < 2) {
      throw ArgumentError(text(str(), ": ", millstream::str(input[i]), " has ",
                               shape.rank(),
                               " axes, but an image has at least 2: height and width"));
    }
    if (first == nullptr) first = &input[i];
    if (shape[0] != first->shape[0] || shape[1] != first->shape[1]) {
      throw ArgumentError(text(str(), ": '", first->name, "' is ",
                               by(first->shape[0], first->shape[1]), ", but '",
                               input[i].name, "' is ", by(shape[0], shape[1]),
                               ". Images that are cropped together must have the same "
                               "height and width"));
    }
    const HeightWidth possible = choices(shape);
    if (possible.height < 1 || possible.width < 1) {
      throw ArgumentError(
          text(str(), ": a crop of ", by(size_.height, size_.width),
               " does not fit into ", millstream::str(input[i]), ", which is ",
               by(shape[0] + 2 * padding_.height, shape[1] + 2 * padding_.width),
               " with its padding. Use a smaller size or more padding"));
    }
    if (shape[0] > kMost || shape[1] > kMost) {
      throw ArgumentError(text(str(), ": ", millstream::str(input[i]),
                               " is too large: an axis may have at most ", kMost,
                               " elements"));
    }
    std::vector<std::int64_t> extents(shape.extents().begin(), shape.extents().end());
    extents[0] = size_.height;
    extents[1] = size_.width;
    flow.schema[i].shape = Shape(extents);
    flow.from[i] = Flow::kMade;
  }
  return flow;
}

void RandomCrop::apply(const Flow& flow, const Request& request, const Rows& in,
                       Rows& out) const {
  const std::int64_t rows = request.rows();
  const auto corners = out.memory.array<HeightWidth>(rows);
  bool drawn = false;
  for (std::size_t i = 0; i < out.columns.size(); ++i) {
    if (flow.from[i] != Flow::kMade) continue;
    const Column& from = in.columns[i];
    const Column& to = out.columns[i];
    const std::int64_t height = from.shape[0];
    const std::int64_t width = from.shape[1];
    if (!drawn) {  // all images have the same height and width
      const HeightWidth possible = choices(from.shape);
      for (std::int64_t k = 0; k < rows; ++k) {
        Random random = request.random(k);
        const auto top = random.below(static_cast<std::uint32_t>(possible.height));
        const auto left = random.below(static_cast<std::uint32_t>(possible.width));
        corners[static_cast<std::size_t>(k)] = {top - padding_.height,
                                                left - padding_.width};
      }
      drawn = true;
    }
    std::int64_t bytes = byte_size(from.dtype);
    for (int axis = 2; axis < from.shape.rank(); ++axis) bytes *= from.shape[axis];
    const std::int64_t line = size_.width * bytes;
    for (std::int64_t k = 0; k < rows; ++k) {
      if (from.rows != nullptr && k + kPrefetchRows < rows) {
        prefetch(from.row(k + kPrefetchRows), from.row_bytes());
      }
      const auto [top, left] = corners[static_cast<std::size_t>(k)];
      for (std::int64_t y = 0; y < size_.height; ++y) {
        std::byte* target = to.row(k) + y * line;
        if (top + y < 0 || top + y >= height) {
          std::memset(target, 0, static_cast<std::size_t>(line));
        } else {
          copy_line(from.row(k) + (top + y) * width * bytes, width, target, left,
                    size_.width, bytes);
        }
      }
    }
  }
}

}  // namespace millstream
