/* Writing SVG: see svg.h. */
#include <math.h>
#include <string.h>

#include "svg.h"

void svg_open(FILE *to, double width, double height, const char *title)
{
  fprintf(to,
          "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
          "<svg xmlns=\"http://www.w3.org/2000/svg\" version=\"1.1\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
          "font-family=\"Helvetica, Arial, sans-serif\" fill=\"#222\">\n<title>%s</title>\n",
          width, height, width, height, title);
  svg_rect(to, 0, 0, width, height, "fill=\"#fff\"");
}

void svg_close(FILE *to)
{
  fputs("</svg>\n", to);
}

void svg_begin(FILE *to, const char *id)
{
  fprintf(to, "<g id=\"%s\">\n", id);
}

void svg_end(FILE *to)
{
  fputs("</g>\n", to);
}

void svg_number(FILE *to, double value)
{
  char   text[64];
  size_t n;

  snprintf(text, sizeof text, "%.2f", value);
  for (n = strlen(text); text[n - 1] == '0'; --n) text[n - 1] = 0;
  if (text[n - 1] == '.') text[n - 1] = 0;
  fputs(strcmp(text, "-0") ? text : "0", to);
}

static void svg_attribute(FILE *to, const char *name, double value)
{
  fprintf(to, " %s=\"", name);
  svg_number(to, value);
  putc('"', to);
}

void svg_rect(FILE *to, double x, double y, double width, double height, const char *style)
{
  fputs("<rect", to);
  svg_attribute(to, "x", x);
  svg_attribute(to, "y", y);
  svg_attribute(to, "width", width);
  svg_attribute(to, "height", height);
  fprintf(to, " %s/>\n", style);
}

void svg_line(FILE *to, double x1, double y1, double x2, double y2, const char *style)
{
  fputs("<line", to);
  svg_attribute(to, "x1", x1);
  svg_attribute(to, "y1", y1);
  svg_attribute(to, "x2", x2);
  svg_attribute(to, "y2", y2);
  fprintf(to, " %s/>\n", style);
}

static void svg_character(FILE *to, char c)
{
  if (c == '<')
    fputs("&lt;", to);
  else if (c == '>')
    fputs("&gt;", to);
  else if (c == '&')
    fputs("&amp;", to);
  else
    putc(c >= 0x20 && c < 0x7f ? c : '?', to);
}

void svg_text(FILE *to, double x, double y, double size, double room, const char *style, const char *text)
{
  size_t length = strlen(text), most = (size_t)(room / (0.56 * size)); /* a letter's width, on average and a bit */
  int    cut = length > most && most > 3;

  fputs("<text", to);
  svg_attribute(to, "x", x);
  svg_attribute(to, "y", y);
  svg_attribute(to, "font-size", size);
  fprintf(to, " %s>", style);
  for (size_t i = 0; i < (cut ? most - 3 : length); ++i) svg_character(to, text[i]);
  fprintf(to, "%s</text>\n", cut ? "..." : "");
}
